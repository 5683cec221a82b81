"""Background thread of the leader for slow work, such as deletion, which rounds of the control loop do not await."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from service.leader.leadership import Leadership
from service.observability.telemetry import Telemetry
from service.store.pace import Pace

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 5.0
"""Seconds without work after an error."""


@dataclass
class Upkeep:
    """Thread that does its tasks, one after the other, after each call of `wake`, while this process is the leader."""

    leadership: Leadership
    tasks: Sequence[Callable[[Pace], None]]
    telemetry: Telemetry
    _is_woken: threading.Event = field(default_factory=threading.Event, init=False)
    _is_stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Begin soon, or once more after what is being done."""
        self._is_woken.set()

    def stop(self) -> None:
        """Stop after the transaction or the file that is being worked on, and return when the thread has ended."""
        self._is_stopping.set()
        self._is_woken.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        pace = Pace(lambda: self._is_stopping.is_set() or not self.leadership.is_held, self._is_stopping.wait)
        while not self._is_stopping.is_set():
            self._is_woken.wait()
            self._is_woken.clear()
            for task in self.tasks:
                try:
                    task(pace)
                except Exception as error:
                    # Catches everything: a later round tries again, and other tasks must go on.
                    self.telemetry.num_errors.inc()
                    log.error("upkeep_failed", error=str(error).partition("\n")[0], exc_info=error)
                    self._is_stopping.wait(PAUSE_SECONDS)
