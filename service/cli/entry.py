"""Entry point of `dlrm`. An interrupt ends it without a traceback, even while modules are still being imported."""

import os
import signal
import sys
from types import FrameType

from service.cli.errors import EXIT_INTERRUPTED


def main() -> None:
    """Run the command line of `dlrm`; exit with code 130 where it is interrupted."""
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
    # Exit without an exception, because a module that is being imported might catch it.
    os._exit(EXIT_INTERRUPTED)
