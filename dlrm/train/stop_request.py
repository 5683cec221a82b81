"""Request to stop, which SIGTERM and SIGINT make."""

import signal
from types import FrameType

from hostinfo.stop_signals import STOP_SIGNALS


class StopRequest:
    """Request to stop this process, made by SIGTERM or SIGINT. The training loop reads it once a step."""

    def __init__(self) -> None:
        """Listen to no signal yet; see `listen`."""
        self.is_requested = False

    def listen(self) -> None:
        """Handle both signals from now on, also a pending one. Main thread only."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._remember)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def _remember(self, signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.is_requested = True
