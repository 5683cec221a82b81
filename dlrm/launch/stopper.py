"""Requests to stop: the launch process receives them and passes them on to all processes that it has started."""

import contextlib
import logging
import signal
import threading

import psutil

from dlrm.record import AttemptDirectory
from hostinfo.stop_signals import STOP_SIGNALS

log = logging.getLogger(__name__)


class Stopper:
    """Thread that waits for SIGTERM and SIGINT, blocked in the whole process, and passes them on as SIGTERM.

    No signal handler runs, so that the main thread is never interrupted while it imports, forks or tears down. The
    ranks agree among themselves on the step at which they stop.
    """

    def __init__(self) -> None:
        self._attempt: AttemptDirectory | None = None
        self._is_requested = threading.Event()
        self._lock = threading.Lock()
        self.num_signals = 0
        """Number of signals that have come to this process."""

    @property
    def is_requested(self) -> bool:
        return self._is_requested.is_set() or (self._attempt is not None and self._attempt.stop_request.exists())

    def listen(self) -> None:
        """Start to pass on signals, also those that are pending already."""
        threading.Thread(target=self._wait, name="stop", daemon=True).start()

    def enter_attempt(self, attempt: AttemptDirectory) -> None:
        """Leave requests in the directory of an attempt from now on, also one that has come already."""
        with self._lock:
            self._attempt = attempt
            if self._is_requested.is_set():
                self._leave_request()

    def _wait(self) -> None:
        while True:
            number = signal.sigwait(STOP_SIGNALS)
            self.num_signals += 1
            log.info("stop requested: %s", signal.Signals(number).name)
            self.pass_on()

    def pass_on(self) -> None:
        """Pass a request to stop on to all processes that this one has started."""
        # The file comes first: a process that starts from here on finds it, every other one is among the children.
        with self._lock:
            self._is_requested.set()
            self._leave_request()
        # A child may have ended since it was listed.
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.Error):
                    child.send_signal(signal.SIGTERM)

    def _leave_request(self) -> None:
        if self._attempt is None:
            return
        try:
            self._attempt.stop_request.touch()
        except OSError:
            log.exception("the stop request could not be written to disk")
