"""A thread for work that goes on behind its caller, in the order in which it was handed over."""

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Answer = TypeVar("Answer")


class Background:
    """Works off what it is given, one thing after the other.

    Its thread does not keep the process alive: it may wait for a rank that is gone.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._tasks.put, None)

    def submit(self, work: Callable[[], Answer]) -> Future[Answer]:
        """What `work` answers or raises, when its turn has come."""
        future: Future[Answer] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._tasks.put(run)
        if self._thread is None:
            self._thread = threading.Thread(target=_work_off, args=(self._tasks,), name=self._name, daemon=True)
            self._thread.start()
        return future


def _work_off(tasks: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    """Until nobody can hand over any more."""
    while (task := tasks.get()) is not None:
        task()
        del task
