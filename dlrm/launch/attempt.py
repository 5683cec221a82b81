"""One node's part of an attempt: prepares the rows, then runs the ranks of this node."""

import logging
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from dlrm.config import ConfigError, FieldError, ResolvedJob, format_count, parse_document
from dlrm.launch.environment import MixedInstallError, NoDeviceError, check_devices, check_environment
from dlrm.launch.nodes.own_directory import take_document
from dlrm.launch.nodes.state import NodeResult
from dlrm.launch.outcomes import (
    has_own_failure,
    list_rank_ends,
    make_failed_outcome,
    make_lost_outcome,
    make_result,
    make_stopped_outcome,
)
from dlrm.launch.preparation import decide_open_fields, fetch_source, prepare_data
from dlrm.launch.ranks import list_node_ranks, run_ranks, start_import
from dlrm.launch.reports import ServiceReports
from dlrm.launch.standby import StandbyRanks
from dlrm.launch.stopper import Stopper
from dlrm.launch.store_process import StoreRefusedError
from dlrm.launch.watchdog import LOOK_SECONDS, Watchdog
from dlrm.record import AttemptDirectory, EndReason, Outcome, RunDirectory, sync_directory
from dlrm.reporting.reporter import Reporter
from dlrm.run_store.messages import MessageKind
from dlrm.trackers.packages import check_packages

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

log = logging.getLogger(__name__)

LAST_LOOK_SECONDS = 8.0
"""Seconds for a node to find out that node 0 has made the last checkpoint complete in the bucket."""


def read_spec(directory: RunDirectory, number: int) -> ResolvedJob:
    """Read the document that attempt `number` starts with. Raises ConfigError and OSError."""
    return parse_document(ResolvedJob, directory.read_spec(number))


def run_part(
    directory: RunDirectory, number: int, stopper: Stopper, watchdog: Watchdog, reports: ServiceReports
) -> NodeResult:
    """Run this node's part of attempt `number`, and return how it ended; raises nothing."""
    try:
        return _prepare_and_train(directory, number, stopper, watchdog, reports)
    except (MixedInstallError, NoDeviceError, ConfigError) as error:
        return make_result(Outcome(state="failed", reason=EndReason.BAD_INPUT, message=str(error)))
    except StoreRefusedError as error:
        return make_result(make_refused_outcome(error))
    except Exception as error:
        log.exception("the launch process failed")
        if watchdog.has_given_up:
            return make_result(make_given_up_outcome(watchdog), is_cause=False)
        message = f"the launch process failed: {type(error).__name__}: {' '.join(str(error).split())}"[:2000]
        return make_result(Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message))


def _prepare_and_train(
    directory: RunDirectory, number: int, stopper: Stopper, watchdog: Watchdog, reports: ServiceReports
) -> NodeResult:
    check_environment()
    resolved = read_spec(directory, number)
    if resolved.job.data.follow is not None and watchdog.store is not None:
        message = "keeps its rows in the run's directory, and a run in a bucket may go on where that is not"
        raise ConfigError([FieldError("data.follow", message, "null, or a run that is not kept in a bucket")])
    resources = resolved.job.resources
    if watchdog.tracking is not None:
        check_packages(resolved.job.run.trackers)
    check_devices(resources.gpus_per_worker * resources.workers_per_node)
    start_import()
    ranks = list_node_ranks(resources.workers_per_node, watchdog.group)
    with reports.push_ranks(ranks):
        run_round = partial(_run_round, directory, number, ranks, stopper, watchdog)
        result = run_round(resolved, is_later=False)
        while resolved.job.data.follow is not None and _has_more(result, directory.attempt(number)):
            result = run_round(read_spec(directory, number), is_later=True)
        _wait_for_uploads(result, ranks[0], stopper, watchdog)
    return result


def _run_round(
    directory: RunDirectory,
    number: int,
    ranks: range,
    stopper: Stopper,
    watchdog: Watchdog,
    resolved: ResolvedJob,
    *,
    is_later: bool,
) -> NodeResult:
    """Prepare the rows that there are, and run the ranks of this node on them."""
    with closing(StandbyRanks(directory, number, resolved, ranks, is_later_round=is_later)) as standby:
        tell = partial(_tell_start, directory.attempt(number), ranks[0])
        tell("starting processes")
        prepared = _prepare_in_turn(directory, number, resolved, ranks[0], stopper, watchdog)
        if isinstance(prepared, Outcome):
            return make_result(prepared, is_cause=not watchdog.has_given_up)
        tell(f"starting {format_count(len(ranks), 'rank')}")
        failures = None if watchdog.has_given_up else run_ranks(prepared, stopper, watchdog, standby)
        return _make_part_result(directory.attempt(number), failures, watchdog)


def _has_more(result: NodeResult, attempt: AttemptDirectory) -> bool:
    """Whether the ranks have trained on all rows so far, and the files that they follow have not come to an end."""
    return result.outcome is None and not attempt.outcome.exists()


def _tell_start(attempt: AttemptDirectory, first_rank: int, message: str) -> None:
    """Report what is started now; a rank continues in the same reports."""
    with closing(Reporter(attempt, first_rank)) as reporter:
        reporter.progress("starting", message)


def _wait_for_uploads(result: NodeResult, rank: int, stopper: Stopper, watchdog: Watchdog) -> None:
    """Wait until the files that the ranks of this node have left are in the bucket of the run, if it has one.

    Another signal, and the loss of a node, end the wait.
    """
    if watchdog.store is None:
        return
    # From here on this process takes as long as the bucket does, and the others need not wait for it.
    watchdog.close()
    if watchdog.group is not None:
        watchdog.group.update(result=result)
    num_signals = stopper.num_signals

    decided_at: float | None = None

    def is_given_up() -> bool:
        nonlocal decided_at
        if watchdog.group is not None and watchdog.group.place.node != 0 and watchdog.group.states[0].final is not None:
            # Node 0 waits no longer: a checkpoint that it has not made complete by now stays so.
            decided_at = decided_at or time.monotonic()
            if time.monotonic() - decided_at > LAST_LOOK_SECONDS:
                return True
        lost = watchdog.group.list_lost(watchdog.timeout_seconds) if watchdog.group is not None else []
        return stopper.num_signals > num_signals or bool(lost)

    try:
        watchdog.store.wait_for_uploads(rank, is_given_up, has_failed=result.outcome is not None)
    except OSError:
        # The training has ended, whatever becomes of its reports.
        log.exception("the uploads cannot be reported; `dlrm upload` finishes them")


def make_refused_outcome(refused: StoreRefusedError) -> Outcome:
    """Return the outcome of an attempt that cannot begin because of the bucket of its run."""
    reason = EndReason.BAD_INPUT if refused.is_bad_input else EndReason.WORKER_CRASHED
    if refused.is_in_use:
        reason = EndReason.RUN_IN_USE
    return Outcome(state="failed", reason=reason, message=str(refused)[:2000])


def _prepare_in_turn(
    directory: RunDirectory, number: int, resolved: ResolvedJob, first_rank: int, stopper: Stopper, watchdog: Watchdog
) -> ResolvedJob | Outcome:
    """Prepare the rows and decide what the document left open, first on node 0, whose rows the others find.

    Returns the document of the run once all nodes are ready, or the outcome that ends the attempt.
    """
    is_first = watchdog.group is None or watchdog.group.place.node == 0
    if watchdog.group is not None and not is_first:
        _wait_until_prepared(watchdog, stopper, [0])
        take_document(directory, watchdog.group)
    if outcome := _find_early_end(stopper, watchdog):
        return outcome
    outcome = fetch_source(directory, number, resolved, first_rank)
    if outcome is None and resolved.job.data.synthetic is None:
        outcome = prepare_data(directory, number, first_rank)
    if outcome is not None:
        return make_given_up_outcome(watchdog) if watchdog.has_given_up else outcome
    if is_first:
        _take_over_spec(directory, directory.attempt(number))
        resolved = decide_open_fields(directory, resolved)
    else:
        resolved = read_spec(directory, number)
    if watchdog.store is not None:
        watchdog.store.wait_for(MessageKind.FETCHED, lambda: stopper.is_requested or watchdog.has_given_up)
    if watchdog.group is not None:
        if is_first and any(state.has_own_directory for state in watchdog.group.states.values()):
            watchdog.group.update(document=directory.spec.read_text())
        watchdog.group.update(phase="prepared")
        _wait_until_prepared(watchdog, stopper, watchdog.group.members or [])
    return _find_early_end(stopper, watchdog) or resolved


def _wait_until_prepared(watchdog: Watchdog, stopper: Stopper, nodes: Collection[int]) -> None:
    """Wait until `nodes` have prepared their rows, or the attempt cannot go on."""
    assert watchdog.group is not None, "there are other nodes"
    while not (watchdog.has_given_up or stopper.is_requested):
        if watchdog.group.wait_for(
            lambda states: all(states[node].phase == "prepared" for node in nodes), LOOK_SECONDS
        ):
            return


def _find_early_end(stopper: Stopper, watchdog: Watchdog) -> Outcome | None:
    """Return the outcome of an attempt that ends before its ranks are started; None if it goes on."""
    if watchdog.has_given_up:
        return make_given_up_outcome(watchdog)
    return make_stopped_outcome("stopped before the ranks were started") if stopper.is_requested else None


def make_given_up_outcome(watchdog: Watchdog) -> Outcome:
    """Return the outcome of a node that ends because a rank was silent, or another node was lost or has ended."""
    if (silent := watchdog.silent_rank) is not None:
        message = f"rank {silent.rank}{silent.describe()}"
        return Outcome(state="failed", reason=EndReason.PEER_SILENT, message=message, rank=silent.rank)
    if watchdog.lost_node is not None:
        return make_lost_outcome(watchdog.lost_node)
    message = watchdog.taken_over or f"node {watchdog.ended_node} has ended"
    return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)


def _make_part_result(
    attempt: AttemptDirectory, failures: "Mapping[int, ProcessFailure] | None", watchdog: Watchdog
) -> NodeResult:
    """Make the result of a node whose ranks have ended. failures: None if they were not started."""
    if failures is None:
        if watchdog.has_given_up:
            return make_result(make_given_up_outcome(watchdog), is_cause=False)
        return make_result(make_stopped_outcome("stopped before the ranks were started"))
    if not failures:
        return make_result(None)
    is_silent_here = watchdog.silent_rank is not None
    has_own = has_own_failure(attempt, failures, watchdog.killed)
    outcome = (
        make_given_up_outcome(watchdog)
        if is_silent_here or (watchdog.has_given_up and not has_own)
        else make_failed_outcome(attempt, failures)
    )
    return NodeResult(
        outcome=outcome,
        is_cause=has_own or is_silent_here,
        ended_at=min(failure.timestamp for failure in failures.values()),
        rank_ends=list_rank_ends(attempt, failures),
    )


def _take_over_spec(directory: RunDirectory, attempt: AttemptDirectory) -> None:
    """Replace the run's document by the attempt's own, if it has one.

    Called once the run directory is locked and the rows are found: an attempt that is too late, or has other rows,
    changes nothing for later attempts.
    """
    if attempt.spec.exists():
        attempt.spec.replace(directory.spec)
        sync_directory(directory.path)
