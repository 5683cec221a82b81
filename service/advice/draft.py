"""Drafts of advice, as rules make them: with a weight by which they are sorted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from service.advice.changes import make_change
from service.schemas import AdvisedGain, AdvisedItem
from service.schemas.advice import Certainty


class Rank(IntEnum):
    """Subject of a piece of advice: the higher comes first."""

    SIZE = 0
    """Resources beyond the need of the job, or figures with too large an error."""
    SPEED = 1
    """Seconds of a step."""
    DATA = 2
    """Samples and steps to the same result."""
    QUALITY = 3
    """A model that is worse than it could be."""
    BLOCKED = 4
    """A job that waits, or that ended without a model."""


@dataclass(frozen=True)
class Draft:
    """One piece of advice with its weight."""

    name: str
    rank: Rank
    share: float
    """Share of time, samples or quality that is won, from 0 to 1: it decides within a rank."""
    message: str
    certainty: Certainty
    reason: str
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    gain: AdvisedGain | None = None

    def finish(self) -> AdvisedItem:
        return AdvisedItem(
            name=self.name,
            message=self.message,
            gain=self.gain,
            certainty=self.certainty,
            reason=self.reason,
            changes=[make_change(path, value) for path, value in self.changes.items()],
        )
