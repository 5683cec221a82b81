"""Fetches the model from which a run starts, where that is in a bucket, in a process of its own."""

import subprocess
import sys
import tempfile

from dlrm.config import ResolvedJob
from dlrm.config.patterns import is_remote
from dlrm.launch.child import make_child_command
from dlrm.launch.outcomes import describe_exit, make_stopped_outcome
from dlrm.launch.prepare import STOPPED_CODES
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE, AttemptDirectory, EndReason, Outcome, RunDirectory


def fetch_source(
    directory: RunDirectory, attempt: AttemptDirectory, resolved: ResolvedJob, rank: int
) -> Outcome | None:
    """Fetch the model from which a run starts, unless an earlier attempt has; return the outcome where that fails.

    rank: the first one of this node, in whose log the fetch is told.
    """
    warm_start = resolved.job.run.warm_start
    if warm_start is None or not is_remote(warm_start.source) or directory.source.exists():
        return None
    arguments = ["fetch", warm_start.source, str(directory.source), "--what", "source"]
    arguments += ["--optimizer-state"] if warm_start.optimizer_state else []
    command = [sys.executable, *make_child_command("dlrm.programs.run_store", arguments)]
    with attempt.rank_log(rank).open("ab") as output, tempfile.TemporaryFile("w+", errors="replace") as errors:
        code = subprocess.Popen(command, stdout=output, stderr=errors).wait()
        errors.seek(0)
        lines = errors.read().strip().splitlines()
        output.write("".join(f"{line}\n" for line in lines).encode())
    if code in STOPPED_CODES:
        return make_stopped_outcome("stopped while fetching the model to start from")
    if code == EXIT_DONE:
        return None
    reason = EndReason.BAD_INPUT if code == EXIT_BAD_INPUT else EndReason.WORKER_CRASHED
    fault = lines[-1] if lines else f"the fetch {describe_exit(code)}"
    return Outcome(state="failed", reason=reason, message=f"run.warm_start.from: {fault}"[:2000])
