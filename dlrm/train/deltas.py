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
    DeltaError,
    Weights,
    list_deltas,
    name_delta,
    read_delta,
    read_position,
    write_delta,
)
from dlrm.exported_model.export import export_model, make_model, write_weights
from dlrm.exported_model.layout import CONFIG, MANIFEST, WEIGHTS, Manifest, Position, SavedConfig
from dlrm.exported_model.write_whole import write_whole
from dlrm.record import DELTA_FAILED, DELTA_WRITTEN, EventReport, rename_synced
from dlrm.train.final_metrics import count_model_size, make_final_metrics

MAX_BASES_OF_DELTAS = 2
"""Size of all deltas, in sizes of their base, above which a new base begins."""


class _NewBaseError(Exception):
    """Deltas that cannot go on, so that a new base begins. The text is the reason; it is empty for the first base."""


class DeltaWriter:
    """Writer of a run's deltas on rank 0. Its state is on disk alone, so that a later attempt goes on.

    The first checkpoint becomes the base, a whole model. A delta is the difference of two states, whatever steps are
    between them and however tables are sharded: a run that resumes from an older checkpoint needs nothing special. A
    new base begins if the deltas are large together, or if what is on disk cannot be read.
    """

    def __init__(self, directory: Path, resolved: ResolvedJob, dataset: Dataset) -> None:
        self._directory, self._resolved, self._dataset = directory, resolved, dataset

    def add_checkpoint(self, checkpoint: Path, progress: RunProgress) -> EventReport:
        """Write a base or a delta from a checkpoint, and return what to report. A failure ends nothing."""
        try:
            try:
                position, before = self._find_last()
                self._check_size()
            except _NewBaseError as error:
                return self._begin(checkpoint, progress, str(error))
            part = self._directory / "latest.part"
            write_weights(part, checkpoint, self._resolved.job, make_model(self._resolved.job, self._dataset.schema))
            after = self._name_latest(position.order + 1)
            rename_synced(part, after)
            return self._write(before, load_file(after), position, progress.step)
        except (OSError, ValueError, CheckpointError, SafetensorError) as error:
            return _make_failure(error)

    def finish(self, model: Path) -> EventReport | None:
        """Write the delta that leads to the exported model, if it differs from the last one; return what to report.

        If deltas cannot go on, the model becomes a new base.
        """
        try:
            config = SavedConfig.model_validate_json((model / CONFIG).read_bytes())
            try:
                position, before = self._find_last()
            except _NewBaseError as error:
                return None if self._has_reached(config.step) else self._begin_with(model, config.step, str(error))
            weights = load_file(model / WEIGHTS)
            if all(_are_same_bits(weight, before[name]) for name, weight in weights.items()):
                self._name_latest(position.order).unlink()
                return None
            return self._write(before, weights, position, config.step or 0)
        except (OSError, ValueError, SafetensorError) as error:
            return _make_failure(error)

    def _find_last(self) -> tuple[Position, Weights]:
        """Find the state that the next delta follows, and its weights. Raises _NewBaseError.

        Removes what a killed process has left.
        """
        position, _ = self._read_newest()
        latest = self._name_latest(position.order)
        self._remove("latest*", "*.part", "*.old", but=latest)
        try:
            return position, load_file(latest)
        except (OSError, SafetensorError) as error:
            raise _NewBaseError(_describe(latest, error)) from error

    def _read_newest(self) -> tuple[Position, int | None]:
        """Read the state after the newest delta and its step, or the base's without deltas. Raises _NewBaseError.

        Removes deltas of an earlier base, as a kill leaves them.
        """
        base, deltas = self._directory / BASE, list_deltas(self._directory)
        if not deltas and not base.exists():
            raise _NewBaseError
        path = base
        try:
            for name, written in Manifest.model_validate_json((base / MANIFEST).read_bytes()).files.items():
                path = base / name
                if (num_bytes := path.stat().st_size) != written.num_bytes:
                    raise ValueError(f"has {num_bytes:,} bytes instead of {written.num_bytes:,}")
            config, position = SavedConfig.model_validate_json((base / CONFIG).read_bytes()), read_position(base)
            if not deltas:
                return position, config.step
            path = deltas[-1]
            record = read_delta(path).record
        except (OSError, ValueError) as error:
            raise _NewBaseError(_describe(path, error)) from error
        if record.position.base == position.base:
            return record.position, record.step
        self._remove("latest*", "delta-*")
        self._link_latest()
        return position, config.step

    def _has_reached(self, step: int | None) -> bool:
        """Whether the base with its deltas is the model of this step already."""
        try:
            return self._read_newest()[1] == step
        except _NewBaseError:
            return False

    def _check_size(self) -> None:
        """Raise _NewBaseError if the deltas take too much disk."""
        num_bytes, base_bytes = (
            sum(path.stat().st_size for path in paths)
            for paths in (list_deltas(self._directory), [self._directory / BASE / WEIGHTS])
        )
        if num_bytes > MAX_BASES_OF_DELTAS * base_bytes:
            sizes = f"{num_bytes / 1e6:,.1f} MB, and the base {base_bytes / 1e6:,.1f} MB"
            raise _NewBaseError(f"the deltas before it take {sizes}")

    def _begin(self, checkpoint: Path, progress: RunProgress, reason: str) -> EventReport:
        """Write a base from a checkpoint. Deltas of an earlier one stay until it is whole."""
        metrics = make_final_metrics(progress, progress.last_evaluation, progress.step)
        metrics |= count_model_size(self._resolved.job, self._dataset.schema)
        # First, so that no later attempt takes the weights of the earlier base for those of this one.
        self._remove("latest*")
        export_model(checkpoint, self._directory / BASE, self._resolved, self._dataset, metrics)
        self._remove("delta-*")
        self._link_latest()
        return self._report_base(progress.step, reason)

    def _begin_with(self, model: Path, step: int | None, reason: str) -> EventReport:
        """Write a base that is the exported model."""
        self._remove("latest*")
        with write_whole(self._directory / BASE) as part:
            shutil.copytree(model, part, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True)
        self._remove("delta-*")
        return self._report_base(step or 0, reason)

    def _report_base(self, step: int, reason: str) -> EventReport:
        message = f"step {step:,}: deltas begin{' anew' if reason else ''} with the model in {self._directory / BASE}"
        details = {"step": step, "order": 0}
        return EventReport(name=DELTA_WRITTEN, message=f"{message}: {reason}" if reason else message, details=details)

    def _link_latest(self) -> None:
        """Keep the weights of the base as the state that the next delta follows."""
        weights, latest = self._directory / BASE / WEIGHTS, self._name_latest(0)
        try:
            os.link(weights, latest)
        except OSError:
            # The file system has no links.
            part = latest.with_suffix(".part")
            shutil.copyfile(weights, part)
            rename_synced(part, latest)

    def _remove(self, *patterns: str, but: Path | None = None) -> None:
        for path in (path for pattern in patterns for path in self._directory.glob(pattern)):
            if path == but:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _write(self, before: Weights, after: Weights, position: Position, step: int) -> EventReport:
        """Write the delta from the weights at `position` to those after it, and return what to report."""
        record = write_delta(self._directory, before, after, position, step)
        self._name_latest(position.order).unlink()
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


def _describe(path: Path, error: Exception) -> str:
    """Describe the file that deltas cannot go on from."""
    if isinstance(error, DeltaError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"{path} is missing"
    return f"{path} cannot be read: {' '.join(str(error).split())}"


def _make_failure(error: Exception) -> EventReport:
    message = f"no delta was written: {error}; training continues, and the next checkpoint tries again"
    return EventReport(name=DELTA_FAILED, message=message, details={})
