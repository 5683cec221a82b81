"""A request to stop, taken by the launch process and passed on to all that it has started."""

import contextlib
import logging
import signal
import threading

import psutil

from dlrm.record import AttemptDirectory
from hostinfo.stop_signals import STOP_SIGNALS

log = logging.getLogger(__name__)


class Stopper:
    """Waits for SIGTERM and SIGINT, which the whole process holds back, and passes them on as SIGTERM.

    A thread of its own waits, and no signal handler runs: whatever the main thread is doing, importing or forking or
    tearing down, is never interrupted. The ranks agree on the step themselves.
    """

    def __init__(self, attempt: AttemptDirectory) -> None:
        self._attempt = attempt
        self._is_requested = threading.Event()

    @property
    def is_requested(self) -> bool:
        return self._is_requested.is_set() or self._attempt.stop_request.exists()

    def listen(self) -> None:
        """Pass on what comes from now on, and what has come and is held back."""
        threading.Thread(target=self._wait, name="stop", daemon=True).start()

    def _wait(self) -> None:
        while True:
            number = signal.sigwait(STOP_SIGNALS)
            log.info("asked to stop: %s", signal.Signals(number).name)
            self._pass_on()

    def _pass_on(self) -> None:
        self._is_requested.set()
        try:
            # The file first: a process that is started from here on finds it, every other one is among the children.
            self._attempt.stop_request.touch()
        except OSError:
            log.exception("the request to stop could not be noted")
        # One may have ended since it was seen.
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.Error):
                    child.send_signal(signal.SIGTERM)
