"""End of an attempt as its launcher has seen it first, kept in the database until it is recorded."""

from dataclasses import replace

from pydantic import BaseModel

from dlrm.record import CheckpointReport, Outcome, RankEnd
from service.launchers.protocol import LaunchPhase, LaunchStatus
from service.reasons import Reason


class ObservedEnd(BaseModel, from_attributes=True):
    """Fields of a `LaunchStatus` that describe how an attempt has ended, under the same names."""

    reason: Reason | None
    message: str
    exit_code: int | None
    rank_ends: tuple[RankEnd, ...]
    outcome: Outcome | None
    last_log_line: str
    # Absent in what an earlier version has kept.
    model_path: str | None = None
    checkpoint: CheckpointReport | None = None

    def apply(self, status: LaunchStatus) -> LaunchStatus:
        """Return a later `status` with this end in it."""
        return replace(status, phase=LaunchPhase.ENDED, **dict(self))
