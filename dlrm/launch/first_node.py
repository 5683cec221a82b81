"""The launch process of node 0, or of the only node: it opens the run, gathers the nodes and decides the outcome."""

import logging
import math
import os
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from functools import partial

from dlrm.config import ConfigError, FieldError, ResolvedJob, resolve_for_nodes
from dlrm.launch.attempt import make_refused_outcome, read_spec
from dlrm.launch.invocation import Invocation
from dlrm.launch.nodes.conclusion import conclude, settle
from dlrm.launch.nodes.group import NodeGroup, find_host_name
from dlrm.launch.nodes.own_directory import DirectoryError, name_node, settle_directories
from dlrm.launch.nodes.rendezvous import (
    AddressError,
    RendezvousError,
    RendezvousStoppedError,
    choose_members,
    host_rendezvous,
    make_announcement,
)
from dlrm.launch.nodes.state import Announcement, NodeResult, NodeState
from dlrm.launch.outcomes import decide_outcome, make_stopped_outcome
from dlrm.launch.stopper import Stopper
from dlrm.launch.store_process import StoreProcess, StoreRefusedError
from dlrm.launch.tracking import Tracking
from dlrm.launch.watchdog import Watchdog
from dlrm.record import (
    EXIT_FAILED,
    FEWER_NODES,
    RUN_STORE_VARIABLE,
    AttemptDirectory,
    EndReason,
    Outcome,
    RunDirectory,
    RunStoreRecord,
    write_atomically,
)
from dlrm.reporting.reporter import Reporter
from dlrm.run_store.messages import Message, MessageKind
from hostinfo.node_place import NodePlace

log = logging.getLogger(__name__)

MAX_RAISE = 256
"""Samples by which an undecided batch may be raised for a number of machines not demanded by the job's range."""


def run_first_node(invocation: Invocation) -> int:
    """Run the attempt as node 0, or as the only node, and return the exit code of its outcome.

    An attempt that has already ended is not run again.
    """
    attempt = invocation.attempt
    if earlier := Outcome.read(attempt.outcome):
        log.error("attempt %d has already ended, %s: %s", invocation.number, earlier.state, earlier.message)
        # The service may not have heard of it.
        invocation.reports.enter_attempt(attempt, 0)
        invocation.reports.finish(earlier)
        return earlier.exit_code
    try:
        attempt.create()
    except OSError as error:
        log.error("attempt %d cannot start: %s", invocation.number, error)
        return EXIT_FAILED
    invocation.enter_attempt(attempt)
    try:
        with _open_store(invocation) as store:
            return _run_in_store(invocation, store)
    except StoreRefusedError as error:
        return invocation.finish(settle(attempt, make_refused_outcome(error), []))


@contextmanager
def _open_store(invocation: Invocation) -> Generator[StoreProcess | None]:
    """Keep the run in its bucket during the block, if it has one; the run is leased then, and its document here.

    Raises StoreRefusedError.
    """
    record = _find_store(invocation.directory, invocation.run_store)
    if record is None:
        yield None
        return
    log.info("the run is kept in %s", record.run_uri)
    # Whether the other nodes share this directory is not known before they are there; then it has the files of all.
    has_own_directory = invocation.place is not None
    store = StoreProcess(invocation.directory, invocation.number, 0, has_own_directory=has_own_directory)
    try:
        store.wait_for(MessageKind.LEASED, lambda: invocation.stopper.is_requested)
        yield store
    finally:
        store.close()


def _find_store(directory: RunDirectory, run_store: str | None) -> RunStoreRecord | None:
    """Find the store of a run, as its directory or `run_store` names it. Raises StoreRefusedError."""
    is_named = directory.run_store.exists()
    # The variable is for runs that are kept nowhere yet.
    run_store = run_store or (None if is_named else os.environ.get(RUN_STORE_VARIABLE)) or None
    if run_store is None and not is_named:
        return None
    # Imported late: it takes half a second, which other runs need not wait for.
    from dlrm.run_store.open import StoreError, read_record

    try:
        return read_record(directory, run_store)
    except (StoreError, OSError) as error:
        message = Message(kind=MessageKind.REFUSED, text=str(error), is_bad_input=isinstance(error, StoreError))
        raise StoreRefusedError(message) from None


def _run_in_store(invocation: Invocation, store: StoreProcess | None) -> int:
    """Run the attempt as node 0, or as the only node, with the store of the run, if it has one, at hand."""
    directory, number, place, stopper = invocation.directory, invocation.number, invocation.place, invocation.stopper
    attempt = invocation.attempt
    if stopper.is_requested and not directory.spec.exists():
        return invocation.finish(settle(attempt, make_stopped_outcome("stopped before the run was fetched"), []))
    try:
        invocation.place_document()
        resolved = read_spec(directory, number)
        _check_number_of_nodes(resolved, place)
        name_node(directory, None)
    except (OSError, ConfigError) as error:
        return invocation.finish(
            settle(attempt, Outcome(state="failed", reason=EndReason.BAD_INPUT, message=str(error)), [])
        )
    timeout_seconds = resolved.job.run.peer_timeout_seconds
    tracking = Tracking(directory, number) if resolved.job.run.trackers.names else None
    if place is None:
        _write_spec_for_nodes(directory, number, resolved, 1)

        def settle_alone(result: NodeResult) -> Outcome:
            states = {0: NodeState(host=find_host_name(), result=result)}
            return settle(attempt, decide_outcome(states, None), result.rank_ends)

        return invocation.run_watched(number, Watchdog(timeout_seconds, None, stopper, store, tracking), settle_alone)
    try:
        allowed = list_allowed_numbers(resolved)
        announcement = make_announcement(directory, number, allowed[-1], timeout_seconds)
        group, members = _gather_nodes(place, attempt, announcement, allowed, stopper)
        _write_spec_for_nodes(directory, number, resolved, len(members))
        is_own = settle_directories(directory, group.states, members)
        document = directory.read_spec(number).decode() if is_own else ""
        group.update(announcement=announcement.model_copy(update={"members": members}), document=document)
    except RendezvousStoppedError:
        return invocation.finish(settle(attempt, make_stopped_outcome("stopped before all nodes had joined"), []))
    except (RendezvousError, DirectoryError, OSError) as error:
        reason = EndReason.BAD_INPUT if isinstance(error, AddressError) else EndReason.PEER_SILENT
        return invocation.finish(settle(attempt, Outcome(state="failed", reason=reason, message=str(error)), []))
    return invocation.run_watched(
        number,
        Watchdog(timeout_seconds, group, stopper, store, tracking),
        lambda result: conclude(group, attempt, result, timeout_seconds),
    )


def _gather_nodes(
    place: NodePlace, attempt: AttemptDirectory, announcement: Announcement, allowed: Sequence[int], stopper: Stopper
) -> tuple[NodeGroup, list[int]]:
    """Wait on node 0 until the nodes have joined, and return them with those that run the attempt.

    The run's reports say which are missing. Raises what `host_rendezvous` raises.
    """
    with closing(Reporter(attempt, 0)) as reporter:
        tell = partial(reporter.progress, "preparing")
        group = host_rendezvous(place, announcement, allowed, lambda: stopper.is_requested, tell)
        members = choose_members(group.states, allowed)
        if len(members) < allowed[-1]:
            message = f"the attempt begins with {len(members)} of {allowed[-1]} nodes: {members}"
            reporter.event(FEWER_NODES, message)
    return group, members


def _check_number_of_nodes(resolved: ResolvedJob, place: NodePlace | None) -> None:
    """Raise ConfigError if a job of several nodes is started on one, or a job of one node on several, and if the
    document of a range is invalid with one."""
    numbers = resolved.job.resources.node_range
    if place is None and numbers[0] > 1:
        message = f"asks for {numbers[0]} machines, but this is one, without a way to the others"
        valid = "start it on each machine with --node-rank I --rendezvous HOST:PORT, or 1"
        raise ConfigError([FieldError("resources.nodes", message, valid)])
    if place is None and len(numbers) > 1:
        resolve_for_nodes(resolved, 1)
    if place is not None and numbers[-1] == 1:
        message = "is 1, but this is a node of several: --node-rank and --rendezvous, or Slurm's variables, say so"
        raise ConfigError([FieldError("resources.nodes", message, "the number of machines")])


def list_allowed_numbers(resolved: ResolvedJob) -> list[int]:
    """List the numbers of machines that an attempt can have, ascending: those with which the document is valid.

    Their ranks divide every size of the batch. If the batch is yet to be decided, it will be such a size; then those
    numbers are left out that would raise it by many samples, in this attempt and all later ones.
    """
    numbers = resolved.job.resources.node_range
    return list(numbers) if len(numbers) == 1 else [number for number in numbers if _is_allowed(resolved, number)]


def _is_allowed(resolved: ResolvedJob, num_nodes: int) -> bool:
    resources = resolved.job.resources
    if resolved.asked is not None and resolved.asked.batch.global_size == "auto":
        of_ends = math.lcm(resources.least_world_size, resources.node_range[-1] * resources.workers_per_node)
        if math.lcm(of_ends, num_nodes * resources.workers_per_node) > max(of_ends, MAX_RAISE):
            return False
    try:
        resolve_for_nodes(resolved, num_nodes)
    except ConfigError:
        return False
    return True


def _write_spec_for_nodes(directory: RunDirectory, number: int, resolved: ResolvedJob, num_nodes: int) -> None:
    """Write the document for `num_nodes` machines to attempt `number`, where that changes it. Raises OSError."""
    if num_nodes != resolved.job.resources.num_nodes:
        changed = resolve_for_nodes(resolved, num_nodes)
        write_atomically(directory.attempt(number).spec, changed.model_dump_json(indent=1))
