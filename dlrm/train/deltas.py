"""Deltas of a run: rank 0 compares every checkpoint that is written with the state before, while training goes on."""

import os
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from dlrm.checkpoint import CheckpointError
from dlrm.checkpoint.progress import RunProgress
from dlrm.config import ResolvedJob
from dlrm.data.dataset import Dataset
from dlrm.exported_model.delta import (
    BASE,
    Weights,
    get_order,
    list_deltas,
    name_delta,
    read_delta,
    read_position,
    write_delta,
)
from dlrm.exported_model.export import export_model, make_model, write_weights
from dlrm.exported_model.layout import CONFIG, WEIGHTS, Position, SavedConfig
from dlrm.record import DELTA_FAILED, DELTA_WRITTEN, EventReport
from dlrm.train.final_metrics import count_model_size, make_final_metrics


class DeltaWriter:
    """Writer of a run's deltas on rank 0. Its state is on disk alone, so that a later attempt goes on.

    The first checkpoint becomes the base, a whole model. A delta is the difference of two states, whatever steps are
    between them and however tables are sharded: a run that resumes from an older checkpoint needs nothing special.
    """

    def __init__(self, directory: Path, resolved: ResolvedJob, dataset: Dataset) -> None:
        self._directory, self._resolved, self._dataset = directory, resolved, dataset

    def add_checkpoint(self, checkpoint: Path, progress: RunProgress) -> EventReport:
        """Write the base or a delta from a checkpoint, and return what to report. A failure ends nothing."""
        try:
            position = self._find_position()
            if position is None:
                return self._begin(checkpoint, progress)
            part = self._directory / "latest.part"
            write_weights(part, checkpoint, self._resolved.job, make_model(self._resolved.job, self._dataset.schema))
            after = self._name_latest(position.order + 1)
            part.rename(after)
            return self._write(load_file(after), position, progress.step)
        except (OSError, ValueError, CheckpointError, SafetensorError) as error:
            return _make_failure(error)

    def finish(self, model: Path) -> EventReport | None:
        """Write the delta that leads to the exported model, if it differs from the last one; return what to report."""
        try:
            position = self._find_position()
            if position is None:
                return None
            config = SavedConfig.model_validate_json((model / CONFIG).read_bytes())
            latest, weights = self._name_latest(position.order), load_file(model / WEIGHTS)
            before = load_file(latest)
            if all(_are_same_bits(weight, before[name]) for name, weight in weights.items()):
                latest.unlink()
                return None
            return self._write(weights, position, config.step or 0)
        except (OSError, ValueError, SafetensorError) as error:
            return _make_failure(error)

    def _find_position(self) -> Position | None:
        """Find the state that the next delta follows; None if a base must be written.

        Removes what a killed process has left.
        """
        deltas = list_deltas(self._directory)
        order = get_order(deltas[-1]) if deltas else 0
        if not self._name_latest(order).exists():
            return None
        for path in (*self._directory.glob("latest*"), *self._directory.glob("*.part")):
            if path != self._name_latest(order) and path.is_file():
                path.unlink()
        if deltas:
            return read_delta(deltas[-1]).record.position
        return read_position(self._directory / BASE)

    def _begin(self, checkpoint: Path, progress: RunProgress) -> EventReport:
        """Write the base, in place of deltas of an earlier one."""
        base, latest = self._directory / BASE, self._name_latest(0)
        shutil.rmtree(self._directory, ignore_errors=True)
        metrics = make_final_metrics(progress, progress.last_evaluation)
        metrics |= count_model_size(self._resolved.job, self._dataset.schema)
        export_model(checkpoint, base, self._resolved, self._dataset, metrics)
        try:
            os.link(base / WEIGHTS, latest)
        except OSError:
            # The file system has no links. Renamed, so that a file with this name is whole.
            shutil.copyfile(base / WEIGHTS, latest.with_suffix(".part"))
            latest.with_suffix(".part").rename(latest)
        message = f"step {progress.step:,}: deltas begin with the model in {base}"
        return EventReport(name=DELTA_WRITTEN, message=message, details={"step": progress.step, "order": 0})

    def _write(self, weights: Weights, position: Position, step: int) -> EventReport:
        """Write the delta from the state at `position` to `weights`, remove that state, and return what to report."""
        before = self._name_latest(position.order)
        record = write_delta(self._directory, load_file(before), weights, position, step)
        before.unlink()
        path = self._directory / name_delta(record.position.order)
        num_bytes, model_bytes = path.stat().st_size, (self._directory / BASE / WEIGHTS).stat().st_size
        share = f"{num_bytes / 1e6:,.1f} of {model_bytes / 1e6:,.1f} MB"
        message = f"step {record.step:,}: {record.num_rows:,} rows have changed, {share} in {path.name}"
        details = {
            "step": record.step,
            "order": record.position.order,
            "num_rows": record.num_rows,
            "num_bytes": num_bytes,
            "model_bytes": model_bytes,
        }
        return EventReport(name=DELTA_WRITTEN, message=message, details=details)

    def _name_latest(self, order: int) -> Path:
        return self._directory / f"latest-{order:06d}.safetensors"


def _are_same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def _make_failure(error: Exception) -> EventReport:
    message = f"no delta was written: {error}; training continues, and the next checkpoint tries again"
    return EventReport(name=DELTA_FAILED, message=message, details={})
