"""Where `dlrm` begins: an interrupt ends it without a word, also while it still imports what it needs."""

import os
import signal
import sys
from types import FrameType

from service.cli.errors import EXIT_INTERRUPTED


def main() -> None:
    """Run the command line."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from service.cli.main import main as run_command_line

    signal.signal(signal.SIGINT, before)
    try:
        run_command_line()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _end(signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    # Not an exception: what is being imported may take one for its own.
    os._exit(EXIT_INTERRUPTED)
