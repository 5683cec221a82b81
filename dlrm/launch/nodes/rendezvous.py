"""The beginning of an attempt on several nodes: their launch processes meet, and agree on the attempt they run."""

import logging
import secrets
import socket
import time
from collections.abc import Callable, Collection, Sequence
from importlib import metadata

from dlrm.launch.nodes.group import BEAT_SECONDS, JOIN_TIMEOUT_SECONDS, NodeGroup, find_host_name, find_own_address
from dlrm.launch.nodes.own_directory import DirectoryError, claim_directory
from dlrm.launch.nodes.state import Announcement, NodeState
from dlrm.launch.outcomes import make_result, make_stopped_outcome
from dlrm.record import RunDirectory, RunStoreRecord, write_atomically
from hostinfo.node_place import NodePlace

log = logging.getLogger(__name__)

CONNECT_SECONDS = 3.0
"""Longest wait for one connection to node 0 before the next one is tried."""
MAX_NAMED = 8
"""Missing nodes that a sentence names."""
LAST_CALL_SECONDS = 60.0
"""Seconds that an attempt waits for more nodes once it has as many as it needs and could have more."""
STOP_SECONDS = 3.0
"""Longest wait of node 0 for the others to read that it was stopped."""
PACKAGES = ("dlrm-service", "torch")
"""Packages that must have the same version on all nodes."""
SHARED_DIRECTORY_SECONDS = 60.0
"""Longest wait for a file of node 0 to appear here: NFS keeps what it knows of a directory for so long."""


class RendezvousError(RuntimeError):
    """Error of nodes that did not meet, or do not fit together; the message names the nodes."""


class AddressError(RendezvousError):
    """Error of an address that node 0 cannot serve."""


class RendezvousStoppedError(Exception):
    """Exception for a stop that was requested while the nodes met."""


def host_rendezvous(
    place: NodePlace,
    announcement: Announcement,
    allowed: Sequence[int],
    is_stopped: Callable[[], bool],
    on_wait: Callable[[str], None],
) -> NodeGroup:
    """Serve the rendezvous on node 0, and return once as many nodes have joined as the attempt can have.

    allowed: numbers of nodes that it can have, ascending. Fewer than the largest one are enough some time after the
    first of them is reached; node 0 then announces which of them are its members. on_wait: called with a sentence about
    the missing nodes. Raises RendezvousError, AddressError, and RendezvousStoppedError if `is_stopped` turns
    true before, or another node was stopped.
    """
    group = NodeGroup(place, NodeState(host=find_host_name(), announcement=announcement), announcement.num_nodes)
    enough_since: float | None = None
    told: set[int] = set()

    def is_complete() -> bool:
        nonlocal enough_since
        if new := sorted(group.states.keys() - told):
            told.update(new)
            for node in (node for node in new if node != 0):
                log.info("node %d (%s) has joined", node, group.states[node].host)
            on_wait(_describe_wait(place, told, allowed[-1]))
        if len(group.states) >= allowed[0] and enough_since is None:
            enough_since = time.monotonic()
        is_late = enough_since is not None and time.monotonic() - enough_since > LAST_CALL_SECONDS
        return is_late or len(group.states) >= allowed[-1]

    group.start()
    _wait(group, is_complete, is_stopped, lambda: _describe_missing(group, allowed[0]))
    return group


def _describe_wait(place: NodePlace, there: Collection[int], num_nodes: int) -> str:
    missing = [node for node in range(num_nodes) if node not in there]
    if not missing:
        return f"all {num_nodes} nodes are there"
    names = ", ".join(map(str, missing[:MAX_NAMED])) + (" …" if len(missing) > MAX_NAMED else "")
    where = f"{place.host}:{place.port}"
    return f"waiting at {where} for {num_nodes} nodes: {len(there)} there, missing: node {names}"


def choose_members(nodes: Collection[int], allowed: Sequence[int]) -> list[int]:
    """Choose the nodes that run an attempt: the first of those that are there, as many as are allowed."""
    number = max(number for number in allowed if number <= len(nodes))
    return sorted(nodes)[:number]


def join_rendezvous(
    place: NodePlace, directory: RunDirectory, is_stopped: Callable[[], bool], run_store: str | None = None
) -> NodeGroup:
    """Join the rendezvous of node 0, and return once it has decided which nodes run the attempt.

    Nothing is sent to the others before this node has found the run directory of node 0, or has one of its own for the
    same run in a bucket: what meets here by mistake, such as a node of another job, disturbs nobody. run_store: URI of
    the bucket in this node's own options, if any. Raises RendezvousError, and RendezvousStoppedError if `is_stopped`
    turns true before, or another node was stopped.
    """
    log.info("joining node 0 at %s:%d as node %d", place.host, place.port, place.node)
    address = _reach_first(place, is_stopped)
    group = NodeGroup(place, NodeState(host=find_host_name(), address=address), num_nodes=None)
    group.start()
    _wait(group, lambda: group.num_nodes is not None, is_stopped, lambda: _describe_missing(group, 1))
    try:
        announcement = get_announcement(group)
        _check_fit(place, announcement)
        is_own = claim_directory(directory, place, announcement.store, run_store)
        if not is_own:
            _check_shared_directory(directory, announcement)
    except (DirectoryError, OSError) as error:
        group.leave()
        raise RendezvousError(str(error)) from None
    except RendezvousError:
        group.leave()
        raise
    group.update(has_own_directory=is_own)
    group.join()
    _wait(group, lambda: group.is_complete, is_stopped, lambda: _describe_missing(group, 1))
    if group.index is None:
        log.info("the attempt runs on nodes %s: this one waits for its end", group.members)
    return group


def make_announcement(directory: RunDirectory, attempt: int, num_nodes: int, timeout_seconds: float) -> Announcement:
    """Make the description of an attempt, and leave its token in the attempt's directory. Raises OSError."""
    token = secrets.token_hex(16)
    write_atomically(directory.attempt(attempt).nodes_token, token)
    return Announcement(
        attempt=attempt,
        num_nodes=num_nodes,
        versions=describe_versions(),
        token=token,
        peer_timeout_seconds=timeout_seconds,
        store=RunStoreRecord.read(directory.run_store),
    )


def describe_versions() -> str:
    """Describe the versions of the packages that must be the same on all nodes."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)


def get_announcement(group: NodeGroup) -> Announcement:
    """Return the description of the attempt, once the nodes have met."""
    announcement = group.states[0].announcement
    assert announcement is not None, "node 0 announces the attempt from its first beat on"
    return announcement


def _reach_first(place: NodePlace, is_stopped: Callable[[], bool]) -> str:
    """Wait until node 0 listens, and return the address from which this node reaches it.

    Its name may not be known yet, and it may be started later. Raises RendezvousError, and RendezvousStoppedError if
    `is_stopped` turns true before.
    """
    deadline, is_told = time.monotonic() + JOIN_TIMEOUT_SECONDS, False
    while True:
        try:
            address = find_own_address(place.host, place.port)
            socket.create_connection((place.host, place.port), timeout=CONNECT_SECONDS).close()
            return address
        except OSError as error:
            where, minutes = f"--rendezvous {place.host}:{place.port}", JOIN_TIMEOUT_SECONDS / 60
            reason = error.strerror or str(error)
            if is_stopped():
                raise RendezvousStoppedError from None
            if time.monotonic() > deadline:
                raise RendezvousError(f"{where} cannot be reached for {minutes:.0f} minutes: {reason}") from None
            if not is_told:
                is_told = True
                log.warning(
                    "%s cannot be reached yet: %s; node 0 may not have started, or not on this port; trying for %.0f "
                    "minutes",
                    where,
                    reason,
                    minutes,
                )
            time.sleep(BEAT_SECONDS)


def _check_fit(place: NodePlace, announcement: Announcement) -> None:
    """Raise RendezvousError if this node cannot be one of the attempt."""
    if place.node >= announcement.num_nodes:
        message = f"this is node {place.node}, and the job has nodes 0 to {announcement.num_nodes - 1}"
        raise RendezvousError(f"{message} (resources.nodes)")
    if announcement.versions != describe_versions():
        raise RendezvousError(f"node 0 has {announcement.versions}, but {find_host_name()} has {describe_versions()}")


def _check_shared_directory(directory: RunDirectory, announcement: Announcement) -> None:
    """Wait until this node reads the token of node 0 in its run directory. Raises RendezvousError if it cannot."""
    deadline = time.monotonic() + SHARED_DIRECTORY_SECONDS
    while not _reads_token(directory, announcement):
        if time.monotonic() > deadline:
            raise RendezvousError(
                f"{directory.path} on {find_host_name()} is not the run directory of node 0: all nodes need the same "
                "directory, on a file system that they share, such as NFS, or the same --run-store"
            )
        time.sleep(BEAT_SECONDS)


def _reads_token(directory: RunDirectory, announcement: Announcement) -> bool:
    try:
        return directory.attempt(announcement.attempt).nodes_token.read_text() == announcement.token
    except OSError:
        return False


def _wait(
    group: NodeGroup, is_done: Callable[[], bool], is_stopped: Callable[[], bool], describe: Callable[[], str]
) -> None:
    """Wait until `is_done`. describe: says what is missing, where that takes too long."""
    deadline = time.monotonic() + JOIN_TIMEOUT_SECONDS
    while not is_done():
        if is_stopped() or group.find_failed() is not None:
            _leave_stopped(group)
            raise RendezvousStoppedError
        if group.place.node != 0 and 0 in group.states:
            # Node 0 is there: the wait is for the others, and node 0 ends it.
            deadline = time.monotonic() + JOIN_TIMEOUT_SECONDS
        if (lost := group.list_lost(JOIN_TIMEOUT_SECONDS)) or time.monotonic() > deadline:
            group.leave()
            if lost and lost[0].node == group.place.node:
                raise AddressError(
                    f"--rendezvous: {group.place.host}:{group.place.port} cannot be served here: {group.broken} "
                    "(valid: an address of this machine, with a free port)"
                )
            raise RendezvousError(lost[0].describe() if lost else describe())
        group.wait_for(lambda _: is_done(), BEAT_SECONDS)


def _leave_stopped(group: NodeGroup) -> None:
    """Report to the others that this node was stopped; node 0, which serves the store, lets them read it."""
    outcome = make_stopped_outcome("stopped before all nodes had joined")
    group.update(phase="ended", result=make_result(outcome))
    if group.place.node == 0:
        others = [node for node in group.states if node != 0]
        group.wait_for(lambda states: all(states[node].is_leaving for node in others), STOP_SECONDS)
    group.leave()


def _describe_missing(group: NodeGroup, num_needed: int) -> str:
    minutes = JOIN_TIMEOUT_SECONDS / 60
    if group.num_nodes is None:
        return f"node 0 was not there at {group.place.host}:{group.place.port} for {minutes:.0f} minutes"
    missing = sorted(set(range(group.num_nodes)) - set(group.states))
    names = ", ".join(map(str, missing))
    return f"{len(group.states)} of {num_needed} nodes joined within {minutes:.0f} minutes; missing: node {names}"
