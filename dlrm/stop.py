"""A request to stop: SIGTERM or SIGINT, any number of times."""

import signal
from types import FrameType


class StopRequest:
    """Remembers that this process was asked to stop; the training loop looks at it once a step."""

    def __init__(self) -> None:
        self.is_requested = False

    def listen(self) -> None:
        """Take SIGTERM and SIGINT from now on. Main thread only."""
        signal.signal(signal.SIGTERM, self._remember)
        signal.signal(signal.SIGINT, self._remember)

    def _remember(self, signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.is_requested = True
