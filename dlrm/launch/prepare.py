"""Preparation of a run's data, in a process of its own before the ranks are started."""

import subprocess
import sys

from dlrm.launch.child import make_attempt_command
from dlrm.launch.outcomes import describe_exit, make_stopped_outcome
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED, EndReason, Outcome, RunDirectory
from hostinfo.stop_signals import STOP_SIGNALS

STOPPED_CODES = frozenset({EXIT_STOPPED, *(-number for number in STOP_SIGNALS)})


def prepare_data(directory: RunDirectory, number: int, rank: int) -> Outcome | None:
    """Prepare the rows for attempt `number`; return the outcome where that ends the attempt, else None.

    rank: the first one of this node, in whose log and reports the preparation is told.
    """
    arguments = make_attempt_command("dlrm.programs.prepare_run", directory, number)
    command = [sys.executable, *arguments, "--rank", str(rank)]
    with directory.attempt(number).rank_log(rank).open("ab") as output:
        code = subprocess.Popen(command, stdout=output, stderr=output).wait()
    if code in STOPPED_CODES:
        return make_stopped_outcome("stopped while preparing the data")
    if code == EXIT_DONE:
        return None
    # The preparation writes a more precise outcome itself, unless the disk is full.
    reason = EndReason.BAD_INPUT if code == EXIT_BAD_INPUT else EndReason.WORKER_CRASHED
    return Outcome(state="failed", reason=reason, message=f"data preparation {describe_exit(code)}")
