"""One rank of a run: `python -m dlrm.train.worker RUN_DIRECTORY --attempt N`, started by `dlrm.launch`."""

import argparse
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from dlrm.record import EXIT_DONE, EXIT_FAILED, AttemptDirectory, EndReason, Outcome, RunDirectory
from dlrm.reporting.reporter import NODE_VARIABLE, EventRelay, Reporter
from dlrm.train.stop_request import StopRequest
from hostinfo.heartbeat import start_heartbeats
from hostinfo.stop_signals import ignore_stop_signals

if TYPE_CHECKING:
    from dlrm.train.context import RunContext

log = logging.getLogger(__name__)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--wait", action="store_true", help="wait for the environment, a line of JSON on stdin")
    parser.add_argument("--later-round", action="store_true", help="report nothing that earlier ranks have reported")
    arguments = parser.parse_args()
    directory = RunDirectory(arguments.run_directory)
    attempt = directory.attempt(arguments.attempt)
    rank = int(os.environ["RANK"])
    _redirect_output(attempt.rank_log(rank))
    if arguments.wait and not _wait_for_start():
        return EXIT_DONE
    start_heartbeats(rank)
    stop = StopRequest()
    stop.listen()
    stop.is_requested |= attempt.stop_request.exists()
    _quiet_libraries(rank)
    reporter = Reporter(attempt, rank)
    try:
        # Late, so that a stop during these imports, which take seconds, is not lost.
        from dlrm.train.run import run

        with _join_run(directory, attempt, reporter, stop, is_later_round=arguments.later_round) as context:
            outcome = _stop_early(context) or run(context)
        if rank == 0 and outcome is not None:
            outcome.write_first(attempt.outcome)
        # After a stop too: a rank with another exit code is a failed one to elastic, which would then end all others.
        code = EXIT_DONE
    except Exception as error:
        log.exception("this rank failed")
        _report_failure(error, attempt, rank, reporter)
        code = EXIT_FAILED
    try:
        reporter.close()
    except OSError:
        log.exception("the last reports could not be written")
    # A signal during the interpreter's shutdown would kill it, and a rank that ended well would count as killed.
    ignore_stop_signals()
    return code


def _wait_for_start() -> bool:
    """Import what takes seconds, wait for the environment of the attempt, and return whether it came."""
    # An error comes again, and is reported, where the module is needed.
    with suppress(Exception):
        for module in ("dlrm.train.run", "sharding.comm.process_groups"):
            import_module(module)
    line = sys.stdin.readline()
    if not line:
        return False
    os.environ.update(json.loads(line))
    return True


@contextmanager
def _join_run(
    directory: RunDirectory,
    attempt: AttemptDirectory,
    reporter: Reporter,
    stop: StopRequest,
    *,
    is_later_round: bool,
) -> "Iterator[RunContext]":
    """Prepare this process for training, and join the other ranks."""
    import torch

    from dlrm.config import ResolvedJob
    from dlrm.train.allocator import keep_freed_memory
    from dlrm.train.context import RunContext
    from sharding.comm.process_groups import join_process_groups

    keep_freed_memory()
    resolved = ResolvedJob.model_validate_json(directory.spec.read_bytes())
    torch.set_num_threads(resolved.job.resources.threads_per_worker)
    with join_process_groups(use_cuda=resolved.job.resources.gpus_per_worker > 0) as ranks:
        files = _list_relayed_files(directory, attempt, has_trackers=bool(resolved.job.run.trackers.names))
        relay = EventRelay(files, reporter) if files else None
        yield RunContext(resolved, directory, attempt.profile, ranks, reporter, stop, relay, is_later_round)


def _list_relayed_files(directory: RunDirectory, attempt: AttemptDirectory, *, has_trackers: bool) -> list[Path]:
    """List the files with events that this rank passes on: the uploader's, on the first rank of a node whose run is
    kept in a bucket, and on rank 0 the trackers'."""
    files: list[Path] = []
    if os.environ["LOCAL_RANK"] == "0" and directory.run_store.exists():
        files.append(attempt.uploads_file(int(os.environ.get(NODE_VARIABLE, "0"))))
    if has_trackers and os.environ["RANK"] == "0":
        files.append(attempt.tracking_events)
    return files


def _report_failure(error: Exception, attempt: AttemptDirectory, rank: int, reporter: Reporter) -> None:
    """Write the outcome, unless another rank was first, or is the cause.

    If the disk is full, which may be the cause, the launch process reports what it observes.
    """
    try:
        if _is_lost_peer(error):
            # Probably another rank died first, and the launch process saw which one; otherwise it reads this file.
            attempt.rank_error(rank).write_text(_format_error(error))
            return
        outcome = Outcome(state="failed", reason=_classify(error), message=_format_error(error), rank=rank)
        try:
            outcome.write_first(attempt.outcome)
        finally:
            reporter.rank_event("error", outcome.message, reason=outcome.reason)
    except OSError:
        log.exception("the failure of this rank could not be recorded")


def _is_lost_peer(error: Exception) -> bool:
    # The missing module may be the one that classifies the other errors.
    if isinstance(error, ImportError):
        return False
    from sharding.comm.process_groups import is_lost_peer

    return is_lost_peer(error)


def _stop_early(context: "RunContext") -> Outcome | None:
    """Return an outcome where some rank was asked to stop before there is anything to lose. Collective."""
    from sharding.comm.step_vote import StepVote, all_reduce_votes

    vote = StepVote(is_stop_requested=context.stop.is_requested)
    if not all_reduce_votes(context.ranks, vote).is_stop_requested:
        return None
    return Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, message="stopped before the data was read")


def _classify(error: Exception) -> EndReason:
    if isinstance(error, ImportError):
        return EndReason.WORKER_CRASHED
    import torch

    from dlrm.data.errors import DataError
    from dlrm.train.evaluator import DivergedError

    if isinstance(error, DataError):
        return EndReason.BAD_INPUT
    if isinstance(error, DivergedError):
        return EndReason.DIVERGED
    is_host_memory = isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)
    if is_host_memory or isinstance(error, torch.OutOfMemoryError):
        return EndReason.OUT_OF_MEMORY
    return EndReason.WORKER_CRASHED


def _format_error(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if _classify(error) is EndReason.BAD_INPUT else f"{type(error).__name__}: {text}"[:2000]


def _quiet_libraries(rank: int) -> None:
    """Keep this log to messages of the run: FBGEMM and TorchRec would fill it with how tables are built."""
    logging.basicConfig(level=logging.WARNING, format=f"%(asctime)s rank {rank} %(message)s")
    logging.getLogger("dlrm").setLevel(logging.INFO)
    # TorchRec warns of what it chooses by itself, and uses functions of torch that have newer names.
    for name in ("torchrec", "torch.fx._symbolic_trace"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torchrec|torch\.distributed\.c10d_logger")
    # The export reads the checkpoint in one process, on purpose.
    warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)


def _redirect_output(path: Path) -> None:
    """Redirect everything that this process prints, from C++ too, to its log file."""
    sys.stdout.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
