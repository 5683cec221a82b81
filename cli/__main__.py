"""Entry point of `dlrm` and `python -m cli`. An interrupt ends it without a traceback, even during imports."""

import os
import signal
import sys
from types import FrameType

from cli.local.errors import EXIT_INTERRUPTED
from hostinfo.fast_exit import skip_last_collection


def main() -> None:
    """Run the command line of `dlrm`; exit with code 130 if it is interrupted."""
    old_handler = signal.getsignal(signal.SIGINT)
    if old_handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_at_once)
    skip_last_collection()
    from cli.main import main as run_command_line

    signal.signal(signal.SIGINT, old_handler)
    try:
        run_command_line()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _exit_at_once(signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    # Exit without an exception, because a module that is being imported might catch it.
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
