"""A request to stop: SIGTERM or SIGINT, any number of times.

The launch process holds both signals back from its first line on, and what it starts begins with them held back: one
that comes early waits until the program is ready for it. None is lost, and none kills by surprise.
"""

import signal
from types import FrameType

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


def hold_stop_signals() -> None:
    """Keep both signals waiting, for this thread and for all threads and processes that it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def end_on_stop_signals() -> None:
    """Let both signals end this process at once, one that is waiting too. Main thread only."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def ignore_stop_signals() -> None:
    """Let neither signal do anything any more. Main thread only."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class StopRequest:
    """Remembers that this process was asked to stop; the training loop looks at it once a step."""

    def __init__(self) -> None:
        self.is_requested = False

    def listen(self) -> None:
        """Take both signals from now on, one that is waiting too. Main thread only."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._remember)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def _remember(self, signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.is_requested = True
