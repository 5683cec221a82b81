"""Background thread of the service: looks after all jobs every few seconds, and at once after a wake-up."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from service.control.reconciler import Reconciler
from service.control.round_errors import Faults
from service.control.scheduler import Scheduler
from service.observability.telemetry import Telemetry

Result = TypeVar("Result")


class WakeUp:
    """Signal that ends the pause of the control loop early."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> None:
        self._event.set()

    def wait(self, timeout_seconds: float) -> None:
        self._event.wait(timeout_seconds)
        self._event.clear()


@dataclass
class ControlLoop:
    """Loop that reconciles every job and then starts waiting jobs.

    An error in one job is logged and does not affect the other jobs.
    """

    reconciler: Reconciler
    scheduler: Scheduler
    wake_up: WakeUp
    interval_seconds: float
    telemetry: Telemetry
    faults: Faults
    _is_stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the loop and return when its thread has ended; jobs continue to run."""
        self._is_stopping.set()
        self.wake_up()
        if self._thread is not None:
            self._thread.join()

    def run_once(self) -> None:
        """Make one round: reconcile every job, then schedule."""
        jobs = self._run_guarded("look for jobs", self.reconciler.list_watched, concerns_all=True) or []
        for job in jobs:
            self._run_guarded(job.id, lambda job=job: self.reconciler.reconcile(job))
        self._run_guarded("schedule", self.scheduler.run_once, concerns_all=True)
        self.faults.end_round()
        self.telemetry.num_rounds.inc()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            self.run_once()
            self.wake_up.wait(self.interval_seconds)

    def _run_guarded(self, what: str, work: Callable[[], Result], *, concerns_all: bool = False) -> Result | None:
        try:
            return work()
        except Exception as error:
            # Catches everything: the next round tries again, and this round must continue with the other jobs.
            self.faults.record("control_failed", error, concerns_all=concerns_all, what=what)
            return None
