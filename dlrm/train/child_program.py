"""Programs that a rank starts in processes of their own, so that neither memory nor a crash of theirs is its own."""

from collections.abc import Sequence
from typing import Any

from dlrm.record import EXIT_DONE
from dlrm.train.stop_request import StopRequest
from hostinfo.child import describe_exit, run_child
from hostinfo.stop_signals import STOP_SIGNALS

STOPPED = "was stopped on request"


def run_program(module: str, arguments: Sequence[str], stop: StopRequest, **options: Any) -> str | None:
    """Run the program `module` to its end, and return why its result is incomplete, as the rest of a sentence.

    None if it has done its work, STOPPED if a request to stop has ended it. Main thread only. options: for `run_child`;
    what the program prints goes to the log of this rank by default. Raises OSError if it cannot be started.
    """
    try:
        code = run_child(module, arguments, is_stopped=lambda: stop.is_requested, **options)
    except TimeoutError as error:
        return str(error)
    if code == EXIT_DONE:
        return None
    # A signal to all processes at once, as of a terminal, may reach the program before this process.
    return STOPPED if stop.is_requested or -code in STOP_SIGNALS else describe_exit(code, "the log of rank 0")
