"""Where the time of some steps of an attempt went: what `dlrm train --profile` leaves.

attempt-N/profile/rank-0.trace.json.gz   every operator of those steps, for https://ui.perfetto.dev
                  rank-0.json            the same in figures
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from dlrm.record.files import write_atomically


class OperatorTime(BaseModel):
    """One kind of operator, over the profiled steps."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    seconds_per_step: float
    """In itself, without what it calls; on a GPU those of its kernels."""
    calls_per_step: float


class StepProfile(BaseModel):
    """Of one rank."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int
    first_step: int
    """Counted from 1, in this attempt."""
    num_steps: int
    seconds_per_step: float
    """From the end of one step to the end of the next: fetching the batch and reporting too, evaluations not."""
    parts: dict[str, float]
    """Seconds a step by part of the step, in order; on a GPU those that the host waits."""
    operators: list[OperatorTime]
    """Those that take most, first."""

    def write(self, path: Path) -> None:
        write_atomically(path, self.model_dump_json(indent=1))


@dataclass(frozen=True)
class ProfileDirectory:
    """The ranks of an attempt profile some of its steps where this directory is there when they start."""

    path: Path

    def trace(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.trace.json.gz"

    def figures(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.json"

    def read(self) -> list[StepProfile]:
        """What the ranks have left, in their order."""
        profiles = [StepProfile.model_validate_json(path.read_bytes()) for path in self.path.glob("rank-*.json")]
        return sorted(profiles, key=lambda profile: profile.rank)
