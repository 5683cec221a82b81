"""Scores of the evaluation rows that a run keeps: arrays in files, and a record of their model and rows."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from dlrm.record.files import Record


class ScoresRecord(Record):
    """Record of the scores of the model that a run has left."""

    step: int
    """Number of batches that the model was trained on."""
    num_rows: int
    """Number of evaluation rows."""
    is_weighted: bool
    """Whether the rows have weights."""
    checksum: str
    """SHA-256 of labels and weights in the order of the rows: scores may be paired where it is the same."""

    @classmethod
    def read(cls, path: Path) -> "ScoresRecord | None":
        """Return the record at `path`; None if the file is missing or invalid."""
        try:
            return super().read(path)
        except (OSError, ValidationError):
            return None


@dataclass(frozen=True)
class ScoresDirectory:
    """Files of the scores, arrays of float32 in the order of the evaluation rows, whatever the number of ranks."""

    path: Path

    @property
    def labels(self) -> Path:
        return self.path / "labels.npy"

    @property
    def weights(self) -> Path:
        """File of the weights of the rows; absent if all rows weigh the same."""
        return self.path / "weights.npy"

    @property
    def record(self) -> Path:
        """File with the record of the scores of the model that the run has left; absent before its end."""
        return self.path / "scores.json"

    def logits(self, step: int) -> Path:
        """Return the file of the logits after so many batches."""
        return self.path / f"step-{step:08d}.npy"
