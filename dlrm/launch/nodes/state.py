"""State of a node, which its launch process sends to the other launch processes, as JSON."""

from typing import Literal

from pydantic import ConfigDict, Field

from dlrm.record import OpenRecord, Outcome, RankEnd, Record, RunStoreRecord

NodePhase = Literal["joined", "prepared", "ended"]
"""Phase of a node. joined: it is there; prepared: its rows are ready and its ranks may start; ended: its ranks have
ended, or will not start."""


class Announcement(OpenRecord):
    """Description of the attempt, from node 0 to the others; `versions` says which version has sent it."""

    attempt: int
    num_nodes: int
    """Number of nodes that may join, numbered from 0."""
    members: list[int] | None = None
    """Nodes that run the attempt, in the order of their ranks; None until node 0 has decided it."""
    versions: str
    """Versions of the packages of node 0; all nodes need the same."""
    token: str
    """Random text that node 0 has also written to the attempt's directory: who reads it there shares the directory."""
    peer_timeout_seconds: float
    store: RunStoreRecord | None = None
    """Place of the run in a bucket; None if it is kept in none."""


class NodeResult(Record):
    """End of one node's part of an attempt, as its launch process saw it."""

    outcome: Outcome | None
    """Outcome that counts if no rank has written one; None if all ranks of this node ended well."""
    is_cause: bool
    """Whether something went wrong on this node itself; False where it ended only because another node did."""
    ended_at: float
    """Time of the first failure, or of the end, in seconds since the epoch, by the clock of this node."""
    rank_ends: list[RankEnd] = Field(default=[])
    """Ends of the ranks of this node that failed."""


class NodeState(OpenRecord):
    """State of one node, sent again with every beat."""

    model_config = ConfigDict(populate_by_name=True)

    host: str
    """Name of the machine, for messages."""
    address: str = ""
    """Address from which this node reaches node 0; empty on node 0 itself."""
    beat: int = 0
    """Number of times that this state was sent: a node whose number does not grow is silent."""
    phase: NodePhase = "joined"
    announcement: Announcement | None = None
    """Description of the attempt; None on all nodes but node 0."""
    # Nodes of other versions call it `account`.
    result: NodeResult | None = Field(default=None, validation_alias="account", serialization_alias="account")
    """End of the node; None until then."""
    has_own_directory: bool = False
    """Whether the node has another run directory than node 0."""
    document: str = ""
    """Document of the attempt, from node 0 to nodes with directories of their own."""
    final: Outcome | None = None
    """Outcome of the attempt, once node 0 has decided it from all results; None on all other nodes."""
    is_leaving: bool = False
    """Whether the node has read the outcome and sends nothing any more."""

    @property
    def has_failed(self) -> bool:
        """Whether the node's part of the attempt has ended without success."""
        return self.result is not None and self.result.outcome is not None
