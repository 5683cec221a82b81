"""Label that distinguishes the checkpoints of one run from those of another."""

from dataclasses import dataclass
from typing import Any

from dlrm.config import ResolvedJob, differences, identity_of
from dlrm.data.errors import DataError
from dlrm.record import CheckpointDirectory, CheckpointManifest


@dataclass(frozen=True)
class RunIdentity:
    """Label of one run: the same in every attempt, whatever its ranks and its plan."""

    settings: dict[str, Any]
    """Settings by dotted field."""
    data_checksum: str | None
    """Checksum of the prepared rows; None for a synthetic log."""

    @classmethod
    def of(cls, resolved: ResolvedJob, data_checksum: str | None) -> "RunIdentity":
        return cls(identity_of(resolved.job) | {"gradient_scale": resolved.gradient_scale}, data_checksum)

    def check(self, checkpoint: CheckpointDirectory, manifest: CheckpointManifest) -> None:
        """Raise DataError, which names every field that differs, where the checkpoint belongs to another run."""
        differing = differences(self.settings, manifest.identity)
        if self.data_checksum != manifest.data_checksum:
            differing.append("data is of other rows")
        if differing:
            message = f"the checkpoint is of a run with other settings: {'; '.join(differing)}"
            raise DataError(message, checkpoint.path, valid="the settings as they were, or a run directory of its own")
