"""The process that feeds the experiment trackers of a run, as the launch process starts and sees it."""

import logging
import subprocess
import threading
from contextlib import closing

from dlrm.record import EXIT_DONE, TRACKING_FAILED, Outcome, RunDirectory
from dlrm.reporting.reporter import EventRelay, Reporter, count_told
from hostinfo.child import describe_exit, make_child_command

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
LOG_NAME = "logs/trackers.log of the attempt"
CLOSE_SECONDS, STOPPED_CLOSE_SECONDS = 30.0, 5.0
"""Longest wait for the trackers at the end of an attempt, and of one that was asked to stop: a later attempt writes
what they lack."""


class Tracking:
    """The process that feeds trackers, from the first report of training to the end of the attempt.

    It starts only then, and with low priority: its imports take no time from the start of the training.
    """

    def __init__(self, directory: RunDirectory, number: int) -> None:
        """Wait for the first report of attempt `number`, in a thread."""
        self._directory, self._number = directory, number
        self._attempt = directory.attempt(number)
        self._child: subprocess.Popen[bytes] | None = None
        self._outcome: Outcome | None = None
        self._failure: str | None = None
        self._is_closing = threading.Event()
        # The kernel ends a child with the thread that started it: this one lasts as long as the child.
        self._thread = threading.Thread(target=self._run, name="trackers", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Process id of the process; None before it has started."""
        return None if self._child is None else self._child.pid

    def close(self, outcome: Outcome) -> None:
        """Let the trackers have the rest and the outcome, for a limited time, and report what failed in them."""
        self._outcome = outcome
        self._is_closing.set()
        self._thread.join(STOPPED_CLOSE_SECONDS if outcome.state == "stopped" else CLOSE_SECONDS)
        if self._thread.is_alive() and self._child is not None:
            self._failure = "they took too long at the end"
            self._child.kill()
        if self._failure is None and not self._attempt.tracking_events.exists():
            return
        try:
            with closing(Reporter(self._attempt, 0)) as reporter:
                num_told = count_told(self._attempt, 0, {TRACKING_FAILED})
                EventRelay([self._attempt.tracking_events], reporter, num_told).tell_new()
                if self._failure is not None:
                    reporter.event(TRACKING_FAILED, f"run.trackers: {self._failure}; a later attempt writes the rest")
        except OSError:
            log.exception("what failed in the trackers cannot be reported")

    def _run(self) -> None:
        while not (has_reports := self._has_reports()) and not self._is_closing.wait(LOOK_SECONDS):
            pass
        if not (has_reports or self._has_reports()):
            return
        arguments = [str(self._directory.path), "--attempt", str(self._number)]
        try:
            with self._attempt.tracking_log.open("ab") as output:
                self._child = subprocess.Popen(
                    ["nice", *make_child_command("dlrm.trackers.process", arguments)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                )
            self._is_closing.wait()
            assert self._outcome is not None, "it is set before"
            self._child.communicate(self._outcome.model_dump_json().encode())
        except OSError as error:
            self._failure = f"the process that feeds them failed: {error}"
            return
        if self._child.returncode != EXIT_DONE and self._failure is None:
            self._failure = f"the process that feeds them {describe_exit(self._child.returncode, LOG_NAME)}"

    def _has_reports(self) -> bool:
        spool = self._attempt.spool_file(0, "metrics")
        return spool.exists() and spool.stat().st_size > 0
