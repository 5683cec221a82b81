"""End of an attempt as its launcher has seen it first, kept in the database until it is recorded."""

from dataclasses import replace

from pydantic import BaseModel

from dlrm.record import CheckpointReport, Outcome, RankEnd
from service.launchers.protocol import LaunchPhase, LaunchStatus
from service.reasons import Reason


class ObservedEnd(BaseModel):
    """Fields of a `LaunchStatus` that describe how an attempt has ended."""

    reason: Reason | None
    message: str
    exit_code: int | None
    rank_ends: list[RankEnd]
    outcome: Outcome | None
    last_log_line: str
    # Absent in what an earlier version has kept.
    model_path: str | None = None
    checkpoint: CheckpointReport | None = None

    @classmethod
    def from_status(cls, status: LaunchStatus) -> "ObservedEnd":
        return cls(
            reason=status.reason,
            message=status.message,
            exit_code=status.exit_code,
            rank_ends=list(status.rank_ends),
            outcome=status.outcome,
            last_log_line=status.last_log_line,
            model_path=status.model_path,
            checkpoint=status.checkpoint,
        )

    def apply(self, status: LaunchStatus) -> LaunchStatus:
        """Return a later `status` with this end in it."""
        return replace(
            status,
            phase=LaunchPhase.ENDED,
            reason=self.reason,
            message=self.message,
            exit_code=self.exit_code,
            rank_ends=tuple(self.rank_ends),
            outcome=self.outcome,
            last_log_line=self.last_log_line,
            model_path=self.model_path,
            checkpoint=self.checkpoint,
        )
