"""A thread that does work in the background, in the order of submission."""

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class BackgroundThread:
    """Runs one piece of work after another.

    Its thread does not keep the process alive: it may wait for a rank that is gone.
    """

    def __init__(self, name: str, idle: Callable[[], None] | None = None, idle_seconds: float | None = None) -> None:
        """Start no thread yet; the first piece of work does.

        idle: called whenever there was no work for `idle_seconds`; the thread keeps alive what it refers to.
        """
        self._name, self._idle, self._idle_seconds = name, idle, idle_seconds
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._tasks.put, None)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue `work`; the future holds what it returns or raises."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._tasks.put(run)
        if self._thread is None:
            arguments = (self._tasks, self._idle, self._idle_seconds)
            self._thread = threading.Thread(target=_run_tasks, args=arguments, name=self._name, daemon=True)
            self._thread.start()
        return future


def _run_tasks(
    tasks: "queue.SimpleQueue[Callable[[], None] | None]", idle: Callable[[], None] | None, idle_seconds: float | None
) -> None:
    """Run tasks until None ends them, once no `BackgroundThread` can submit more."""
    while True:
        try:
            task = tasks.get(timeout=idle_seconds)
        except queue.Empty:
            task = idle
        if task is None:
            return
        task()
        # Release its result before waiting for the next task.
        del task
