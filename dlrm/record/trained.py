"""A trained model on disk, and the run that produced it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dlrm.record.checkpoints import (
    CheckpointDirectory,
    CheckpointFaultError,
    find_checkpoint,
    find_newest_checkpoint,
)
from dlrm.record.directory import RunDirectory
from dlrm.record.files import OpenRecord

MODEL_CONFIG = "config.json"
MAX_CONFIG_BYTES = 1 << 26
"""Largest size of a `config.json` in bytes; ten thousand columns need far less."""


class NoModelError(Exception):
    """Error of a path that leads to no trained model; the message says why, and does not contain the path."""


class ModelRecord(OpenRecord):
    """Content of a model's `config.json`, as far as it is needed outside of scoring."""

    model: dict[str, Any]
    """The `model` section of the job that trained it."""
    data: dict[str, Any]
    """The `data` section of that job, with absolute paths."""
    num_dense: int
    table_rows: dict[str, int]
    """Number of table rows by feature, in the order of features."""
    first_order_share: float | None = None
    """Share of logistic regression in the logit of a blended model; null if the model is not blended."""
    compression: dict[str, Any] | None = None
    """Formats of its weights if it was compressed after its training; null if it was not."""
    step: int | None = None
    """Step of the checkpoint that the model was exported from; null in models of earlier versions, which are of the
    last one."""


@dataclass(frozen=True)
class TrainedModel:
    """One trained model."""

    path: Path
    """Directory of the model."""
    run: RunDirectory | None
    """Run that was named; None if the model's own directory was named."""

    @classmethod
    def find(cls, path: Path) -> "TrainedModel":
        """Find the model at `path`, the directory of a model or of a run that has one. Raises NoModelError."""
        run = RunDirectory(path)
        try:
            if (path / MODEL_CONFIG).is_file():
                return cls(path, None)
            if (run.model / MODEL_CONFIG).is_file():
                return cls(run.model, run)
            if run.spec.is_file():
                raise NoModelError("contains no model: a run has one once it has succeeded")
            raise NoModelError("contains no model" if path.is_dir() else "is not a directory")
        except OSError as error:
            raise NoModelError(f"cannot be read: {error.strerror}") from None

    def read_record(self) -> ModelRecord:
        """Read the model's `config.json`. Raises NoModelError if it cannot be read."""
        path = self.path / MODEL_CONFIG
        try:
            if path.stat().st_size > MAX_CONFIG_BYTES:
                raise NoModelError(f"its {MODEL_CONFIG} is damaged: it is too long")
            return ModelRecord.model_validate_json(path.read_bytes())
        except OSError as error:
            raise NoModelError(f"its {MODEL_CONFIG} cannot be read: {error.strerror}") from None
        except ValidationError as error:
            field = ".".join(map(str, error.errors()[0]["loc"]))
            raise NoModelError(f"its {MODEL_CONFIG} is damaged{f' at {field}' if field else ''}") from None

    @property
    def checkpoint(self) -> CheckpointDirectory | None:
        """Complete checkpoint that the model was exported from; None if it is gone, or if no run was named.

        Raises NoModelError if the model cannot be read.
        """
        if self.run is None:
            return None
        step = self.read_record().step
        if step is None:
            return find_newest_checkpoint(self.run.checkpoints)
        try:
            checkpoint = find_checkpoint(self.run.checkpoints, f"step-{step}")
            checkpoint.read_manifest()
        except (CheckpointFaultError, OSError):
            return None
        return checkpoint
