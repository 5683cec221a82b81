"""Background thread of the service: looks after all jobs every few seconds, and at once after a wake-up."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from service.control.attempt_finalizer import AttemptFinalizer
from service.control.job_faults import JobFaults
from service.control.reconciler import Reconciler
from service.control.restart_policy import BackOff
from service.control.round_errors import Faults
from service.control.scheduler import Scheduler
from service.control.starter import Starter
from service.control.upkeep import Upkeep
from service.control.wake_up import WakeUp
from service.database import Database
from service.launchers.registry import Launchers
from service.leader.leadership import Leadership, LeadershipLostError
from service.observability.telemetry import Telemetry
from service.schedules.runner import ScheduleRunner
from service.settings import Settings
from service.store.pace import Pace
from service.store.run_facts import RunFacts

Result = TypeVar("Result")

log = structlog.get_logger(__name__)

FOLLOW_SECONDS = 1.0
"""Seconds between two tries to become the leader."""


@dataclass
class ControlLoop:
    """Loop that reconciles every job and then starts waiting jobs, while this process is the leader.

    An error in one job is logged and does not affect the other jobs; if it stays, it ends the job.
    """

    leadership: Leadership
    reconciler: Reconciler
    scheduler: Scheduler
    upkeep: Upkeep
    schedules: ScheduleRunner
    wake_up: WakeUp
    interval_seconds: float
    telemetry: Telemetry
    faults: Faults
    job_faults: JobFaults
    _is_stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._thread.start()
        self.upkeep.start()

    def stop(self) -> None:
        """Stop the loop and return when its thread has ended; jobs continue to run, and another process may lead."""
        self._is_stopping.set()
        self.wake_up()
        if self._thread is not None:
            self._thread.join()
        self.upkeep.stop()
        self.leadership.resign()

    def run_once(self) -> bool:
        """Make one round, if this process is or becomes the leader: reconcile every job, then schedule.

        Return whether it did.
        """
        try:
            if not self._run_guarded("lead", self.leadership.acquire, concerns_all=True):
                return False
            with self.telemetry.round_seconds.time():
                self._run_round()
        except LeadershipLostError as error:
            log.warning("leadership_lost", reason=str(error))
            return False
        finally:
            self.faults.end_round()
        self.telemetry.num_rounds.inc()
        self.telemetry.last_round.set_to_current_time()
        return True

    def _run_round(self) -> None:
        if self._run_guarded("begin the round", self.leadership.begin_round, concerns_all=True) is None:
            return
        for job in self._run_guarded("look for jobs", self.reconciler.list_watched, concerns_all=True) or []:
            self._run_guarded("renew leases", self.leadership.renew_if_due, concerns_all=True)
            self.job_faults.guard("control_failed", job.id, lambda job=job: self.reconciler.reconcile(job))
        for orphan in self._run_guarded("look for orphans", self.reconciler.list_orphans, concerns_all=True) or []:
            self._run_guarded(orphan.name.job_id, lambda orphan=orphan: self.reconciler.kill_orphan(orphan))
        self.upkeep.wake()
        self._run_guarded("run schedules", self.schedules.run_due, concerns_all=True)
        if self._run_guarded("schedule", self.scheduler.run_once, concerns_all=True) is False:
            # Others wait to be started: the next round begins at once.
            self.wake_up()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            is_leader = self.run_once()
            self.wake_up.wait(self.interval_seconds if is_leader else FOLLOW_SECONDS)

    def _run_guarded(self, what: str, work: Callable[[], Result], *, concerns_all: bool = False) -> Result | None:
        try:
            return work()
        except LeadershipLostError:
            raise
        except Exception as error:
            # Catches everything: the next round tries again, and this round must continue with the other jobs.
            self.faults.record("control_failed", error, concerns_all=concerns_all, what=what)
            return None


def make_control(
    settings: Settings,
    database: Database,
    leadership: Leadership,
    launchers: Launchers,
    facts: RunFacts,
    telemetry: Telemetry,
    wake_up: WakeUp,
    schedules: ScheduleRunner,
    upkeep: Sequence[Callable[[Pace], None]],
) -> ControlLoop:
    """Make the control loop, without starting it. upkeep: slow tasks of the leader."""
    starter = Starter(leadership, launchers, telemetry)
    back_off = BackOff(settings.restart_delay_seconds, settings.max_restart_delay_seconds)
    finalizer = AttemptFinalizer(leadership, facts, back_off, telemetry)
    grace_seconds = settings.grace_period_seconds
    reconciler = Reconciler(database, leadership, launchers, facts, starter, finalizer, telemetry, grace_seconds)
    faults = Faults(telemetry)
    job_faults = JobFaults(faults, reconciler.give_up)
    return ControlLoop(
        leadership,
        reconciler,
        Scheduler(leadership, launchers, starter, finalizer, job_faults),
        Upkeep(leadership, upkeep, telemetry),
        schedules,
        wake_up,
        settings.reconcile_interval_seconds,
        telemetry,
        faults,
        job_faults,
    )
