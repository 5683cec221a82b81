"""The launch process of a node other than node 0: it joins the attempt that node 0 announces."""

import logging
import os
from collections.abc import Callable

from dlrm.launch.invocation import Invocation
from dlrm.launch.nodes.conclusion import conclude, settle
from dlrm.launch.nodes.group import BEAT_SECONDS, NodeGroup
from dlrm.launch.nodes.own_directory import add_own_outcome, take_document
from dlrm.launch.nodes.rendezvous import RendezvousError, RendezvousStoppedError, get_announcement, join_rendezvous
from dlrm.launch.nodes.state import Announcement, NodeResult
from dlrm.launch.outcomes import make_result
from dlrm.launch.reports import keep_launch_log
from dlrm.launch.store_process import StoreProcess
from dlrm.launch.watchdog import Watchdog
from dlrm.record import EXIT_FAILED, EXIT_STOPPED, RUN_STORE_VARIABLE, EndReason, Outcome
from hostinfo.node_place import NodePlace

log = logging.getLogger(__name__)


def run_other_node(invocation: Invocation, place: NodePlace) -> int:
    """Run this node's part of the attempt that node 0 announces, and return the exit code of its outcome."""
    directory, stopper = invocation.directory, invocation.stopper
    run_store = invocation.run_store or os.environ.get(RUN_STORE_VARIABLE)
    try:
        group = join_rendezvous(place, directory, lambda: stopper.is_requested, run_store)
    except RendezvousStoppedError:
        log.info("stopped before all nodes had joined")
        return EXIT_STOPPED
    except RendezvousError as error:
        log.error("%s", error)
        return EXIT_FAILED
    announcement = get_announcement(group)
    attempt, timeout_seconds = directory.attempt(announcement.attempt), announcement.peer_timeout_seconds

    def conclude_here(result: NodeResult) -> Outcome:
        return conclude(group, attempt, result, timeout_seconds)

    if group.index is None:
        return _wait_as_spare(invocation, group, conclude_here)
    if group.states[place.node].has_own_directory:
        return _run_in_own_directory(invocation, announcement, group)
    invocation.enter_attempt(attempt)
    watchdog = Watchdog(timeout_seconds, group, stopper)
    return invocation.run_watched(announcement.attempt, watchdog, conclude_here)


def _wait_as_spare(invocation: Invocation, group: NodeGroup, conclude_here: Callable[[NodeResult], Outcome]) -> int:
    """Wait for the end of an attempt that does not need this node; leave it without a word if asked to stop."""
    while not group.wait_for(lambda states: states[0].final is not None or states[0].is_leaving, BEAT_SECONDS):
        if invocation.stopper.is_requested:
            log.info("stopped; the attempt goes on without this node, which had no part in it")
            group.leave()
            return EXIT_STOPPED
        if any(lost.node == 0 for lost in group.list_lost(get_announcement(group).peer_timeout_seconds)):
            break
    return invocation.finish(conclude_here(make_result(None)))


def _run_in_own_directory(invocation: Invocation, announcement: Announcement, group: NodeGroup) -> int:
    """Run this node's part of an attempt in a run directory of its own, with its own uploads to the run's bucket."""
    directory, stopper = invocation.directory, invocation.stopper
    attempt, timeout_seconds = directory.attempt(announcement.attempt), announcement.peer_timeout_seconds

    def conclude_own(result: NodeResult) -> Outcome:
        outcome = conclude(group, attempt, add_own_outcome(result, attempt), timeout_seconds)
        settle(attempt, outcome, [])
        return outcome

    try:
        attempt.create()
        take_document(directory, group)
    except OSError as error:
        outcome = Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=str(error))
        return invocation.finish(conclude_own(make_result(outcome)))
    # Uploaded with the other logs: nobody else sees what this launch process says.
    keep_launch_log(attempt.node_log(group.place.node))
    invocation.enter_attempt(attempt)
    store = StoreProcess(directory, announcement.attempt, group.place.node, has_own_directory=True)
    try:
        watchdog = Watchdog(timeout_seconds, group, stopper, store)
        return invocation.run_watched(announcement.attempt, watchdog, conclude_own)
    finally:
        store.close()
