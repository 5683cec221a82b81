"""Parts of a step, and the profile of some steps of an attempt, which `dlrm train --profile` leaves.

attempt-N/profile/rank-0.trace.json.gz   every operator of those steps, for https://ui.perfetto.dev
                  rank-0.json            the same in figures
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from dlrm.record.files import Record

PLAN = "plan"
"""Event with the sharding plan. Details: the ranks of each table, bytes by rank, and `step_seconds`, the expected
seconds of a step by part."""
STEP_PARTS = "step_parts"
"""Event with measured times. Details: `num_steps`, and `seconds`, the seconds of one step by part, on rank 0 of the
attempt."""

WAIT_FOR_ROWS = "wait_for_rows"

PART_DESCRIPTIONS = {
    WAIT_FOR_ROWS: "wait for the rows of a batch to be read or generated, before its ids are sent",
    "lookup": "ids sent to the owners of their rows, rows read and pooled, pooled embeddings sent back",
    "dense": "dense part, forward and backward",
    "give_back": "gradients of pooled embeddings handed to the owners of the rows",
    "agree": "wait for the slowest rank, and the vote on whether the step is finite on all ranks",
    "table_update": "update of the tables' rows and optimizer state; gradients of copies, summed over ranks",
    "wait_for_sum": "all-reduce of the dense gradients, started before the tables' update, and the wait for it",
    "optimizer": "moments of the gradient, the update of the dense parameters, and the average of all weights",
}
"""Description of each part of a step for users, in the order of a step."""


class OperatorTime(Record):
    """Time of one kind of operator, over the profiled steps."""

    name: str
    seconds_per_step: float
    """Seconds a step in the operator itself, without operators that it calls; on a GPU the seconds of its kernels."""
    calls_per_step: float


class ExchangeProfile(Record):
    """Exchange of one kind between ranks, over the profiled steps."""

    kind: str
    in_flight_seconds: float
    """Seconds of a step in which something of the kind is in flight."""
    waited_seconds: float
    """Seconds of a step in which this rank waits for it; in the others it computes."""
    sent_bytes: float
    """Bytes that this rank sends in a step."""


class StepProfile(Record):
    """Profile of one rank."""

    rank: int
    num_ranks: int
    """Number of ranks of the run; ranks on machines with run directories of their own leave their profiles there."""
    first_step: int
    """First profiled step, counted from 1 in this attempt."""
    num_steps: int
    seconds_per_step: float
    """Seconds from the end of one step to the end of the next, including fetching the batch and reporting, excluding
    evaluations."""
    parts: dict[str, float]
    """Seconds a step by part of the step, in order; on a GPU the seconds that the host waits."""
    exchanges: list[ExchangeProfile] = Field(default=[])
    """Exchanges between ranks on CPUs; none if all ranks share memory. Exchanges of TorchRec's tables are only in the
    trace."""
    operators: list[OperatorTime]
    """Operators that take the most time, the longest first."""


@dataclass(frozen=True)
class ProfileDirectory:
    """Directory of the profiles of an attempt; if it exists at the start, the ranks profile some steps."""

    path: Path

    def trace(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.trace.json.gz"

    def figures(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.json"

    def read(self) -> list[StepProfile]:
        """Return the profiles that the ranks have left, in the order of ranks."""
        profiles = [StepProfile.model_validate_json(path.read_bytes()) for path in self.path.glob("rank-*.json")]
        return sorted(profiles, key=lambda profile: profile.rank)
