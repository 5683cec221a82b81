"""Identity that distinguishes the checkpoints of different runs."""

from dataclasses import dataclass
from typing import Any

from dlrm.config import ResolvedJob, list_differences, make_identity
from dlrm.data.errors import DataError
from dlrm.record import CheckpointDirectory, CheckpointManifest


@dataclass(frozen=True)
class RunIdentity:
    """Identity of one run: the same in every attempt, whatever its ranks and its plan."""

    settings: dict[str, Any]
    """Settings by dotted field."""
    data_checksum: str | None
    """Checksum of the prepared rows; None for a synthetic log."""

    @classmethod
    def from_job(cls, resolved: ResolvedJob, data_checksum: str | None) -> "RunIdentity":
        job = resolved.job
        settings = make_identity(job) | {"gradient_scale": resolved.gradient_scale}
        if job.table_optimizer.name != "sgd" and job.batch.is_growing:
            # Earlier versions summed squares of means, which batches of different sizes have not in common.
            settings["table_optimizer.sums_of"] = "samples"
        if job.run.validation_fraction > 0.0 and job.data.split == "hash":
            # Earlier versions held every k-th row out: this one trains on most of those.
            settings["run.validation_rows"] = "one of every k, at a random place"
        return cls(settings, data_checksum)

    def check(self, checkpoint: CheckpointDirectory, manifest: CheckpointManifest) -> None:
        """Raise DataError if the checkpoint belongs to another run; the message names every field that differs."""
        differences = list_differences(self.settings, manifest.identity)
        if self.data_checksum != manifest.data_checksum:
            differences.append("data has other rows")
        if differences:
            message = f"the checkpoint belongs to a run with other settings: {'; '.join(differences)}"
            raise DataError(message, checkpoint.path, valid="the earlier settings, or a new run directory")
