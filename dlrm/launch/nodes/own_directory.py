"""Nodes with run directories of their own, of a run that is kept in a bucket: what travels between them otherwise."""

from collections.abc import Mapping, Sequence

from dlrm.config.patterns import hide_credentials, normalise_uri
from dlrm.launch.nodes.group import NodeGroup, find_host_name
from dlrm.launch.nodes.state import NodeResult, NodeState
from dlrm.record import AttemptDirectory, Outcome, RunDirectory, RunStoreRecord, write_atomically
from hostinfo.node_place import NodePlace


class DirectoryError(RuntimeError):
    """Error of run directories that do not fit together; the message names the nodes."""


def claim_directory(
    directory: RunDirectory, place: NodePlace, store: RunStoreRecord | None, run_store: str | None
) -> bool:
    """Find out whether this node has a run directory of its own, and not the one of node 0.

    store: the store of node 0; None if absent. run_store: this node's own option, if any. Raises
    DirectoryError if they differ, and OSError.
    """
    own = RunStoreRecord.read(directory.run_store)
    if store is None or (own is None and not run_store):
        return False
    if run_store and _normalise(run_store) != store.uri:
        message = f"--run-store {hide_credentials(run_store)} on {find_host_name()}, but {store.uri} on node 0"
        raise DirectoryError(f"{message}: all nodes need the same one")
    if own is None:
        # Refused by the file system, whatever this machine still knows of the directory, where node 0 has it too.
        RunStoreRecord(uri=store.uri, run_id=store.run_id, node=place.node).write_first(directory.run_store)
        own = RunStoreRecord.read(directory.run_store)
        assert own is not None, "it has just been written, here or on node 0"
    if own.directory_id == store.directory_id:
        return False
    if own.run_uri != store.run_uri:
        message = f"{directory.path} on {find_host_name()} is the directory of {own.run_uri}"
        raise DirectoryError(f"{message}, but node 0 runs {store.run_uri}: name another --run-directory")
    if own.node != place.node:
        own.model_copy(update={"node": place.node}).write(directory.run_store)
    return True


def _normalise(uri: str) -> str:
    """Return a URI below which runs are kept in its normal form. Raises DirectoryError."""
    try:
        return normalise_uri(uri)
    except ValueError:
        message = f"--run-store {hide_credentials(uri)} on {find_host_name()} is no URI of a store"
        raise DirectoryError(f"{message} (valid: s3://bucket/prefix or gs://bucket/prefix)") from None


def settle_directories(directory: RunDirectory, states: Mapping[int, NodeState], members: Sequence[int]) -> bool:
    """Note on node 0 whether each of the `members` has a run directory of its own, and return it.

    Raises DirectoryError if only some have, and OSError.
    """
    own = [node for node in members if node != 0 and states[node].has_own_directory]
    sharing = [node for node in members if node != 0 and node not in own]
    if own and sharing:
        message = f"node {sharing[0]} has the run directory of node 0, and node {own[0]} one of its own"
        raise DirectoryError(f"{message}: either all nodes share one, or each has its own")
    name_node(directory, 0 if own else None)
    return bool(own)


def name_node(directory: RunDirectory, node: int | None) -> None:
    """Note the only node that works in a run directory kept in a bucket; None for all. Raises OSError."""
    record = RunStoreRecord.read(directory.run_store)
    if record is not None and record.node != node:
        record.model_copy(update={"node": node}).write(directory.run_store)


def take_document(directory: RunDirectory, group: NodeGroup) -> None:
    """Write the document that node 0 has sent to this node's own directory, if it has one. Raises OSError."""
    states = group.states
    if states[group.place.node].has_own_directory and (document := states[0].document):
        write_atomically(directory.spec, document)


def add_own_outcome(result: NodeResult, attempt: AttemptDirectory) -> NodeResult:
    """Return the result of a node, with the outcome that one of its ranks has left in the node's own directory."""
    written = Outcome.read(attempt.outcome)
    if written is None or written.state == "succeeded":
        return result
    return result.model_copy(update={"outcome": written, "is_cause": True})
