"""Deltas: files of the rows of a model that have changed since the file before. They keep a loaded model fresh.

<directory>/base/                      a whole model, see dlrm.exported_model.layout
            delta-000001.safetensors   rows.<feature> int64 [k] and tables.<feature>.weight [k, D] of the tables with
                                       changed rows; dense.<parameter>, all of them
            latest-000001.safetensors  weights of the model after that delta, to compare the next one with

Each delta names the state that it follows by a checksum, so that a model refuses all but the next one.
"""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from dlrm.exported_model.layout import (
    CARD,
    CONFIG,
    HUB_CARD,
    MANIFEST,
    METRICS,
    WEIGHTS,
    Manifest,
    Position,
    SavedConfig,
)
from dlrm.exported_model.weights_file import map_new_weights
from dlrm.exported_model.write_whole import write_whole
from dlrm.record import Record, rename_synced

BASE = "base"
_RECORD = "delta"
Weights = Mapping[str, torch.Tensor]
"""Weights of a model, by name."""
_COMPARED_ROWS = 65_536
"""Rows of a table that are compared at a time."""


class DeltaError(ValueError):
    """Delta that a model cannot take; the text names the file, what is wrong and what would be valid."""


class DeltaRecord(Record):
    """Description of a delta, in the header of its file."""

    position: Position
    """State of a model that has taken it."""
    follows: str
    """Checksum of the state before."""
    step: int
    """Step of the run that it is from."""
    num_rows: int
    """Number of changed rows of all tables."""


@dataclass(frozen=True)
class Delta:
    """One delta, read and compared with its checksum."""

    path: Path
    record: DeltaRecord
    tensors: dict[str, torch.Tensor]

    def check_follows(self, position: Position) -> None:
        """Raise DeltaError if a model at `position` cannot take it."""
        mine, order = self.record.position, position.order
        if self.record.follows == position.checksum:
            return
        next_one = f"valid: {name_delta(order + 1)} of the same base"
        if mine.base != position.base:
            message = f"{self.path}: is of another base than this model"
            raise DeltaError(f"{message} ({next_one}; or load {BASE}/ again, and then take its deltas)")
        if mine.order <= order:
            raise DeltaError(f"{self.path}: this model has taken {name_delta(order)} already ({next_one})")
        if mine.order > order + 1:
            raise DeltaError(f"{self.path}: {name_delta(order + 1)} is missing before it (valid: take that one first)")
        raise DeltaError(f"{self.path}: follows another {name_delta(order)} than this model has taken ({next_one})")

    def apply(self, weights: Weights) -> None:
        """Write the changed rows and the dense part into the weights of a model, by name. Raises DeltaError."""
        for name, tensor in self.tensors.items():
            if name.startswith("rows."):
                continue
            target = weights.get(name)
            if target is None or target.dtype != tensor.dtype or target.shape[1:] != tensor.shape[1:]:
                message = f"{self.path}: has {name}, and the model has no such weights"
                raise DeltaError(f"{message} (valid: its base, in fp32)")
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                if name.startswith("tables."):
                    weights[name].index_copy_(0, self.tensors[_name_rows(name)], tensor)
                elif not name.startswith("rows."):
                    weights[name].copy_(tensor)


def name_delta(order: int) -> str:
    """Return the file name of a delta. order: from 1."""
    return f"delta-{order:06d}.safetensors"


def list_deltas(directory: Path) -> list[Path]:
    """List the deltas of a directory, in order."""
    return sorted(directory.glob("delta-*.safetensors"))


def read_delta(path: Path) -> Delta:
    """Read a delta. Raises DeltaError if it is missing, damaged or no delta."""
    valid = f"valid: a file such as {name_delta(1)}, unchanged"
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_RECORD)
            if text is None:
                raise DeltaError(f"{path}: is no delta ({valid})")
            record = DeltaRecord.model_validate_json(text)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dictionary
    except FileNotFoundError:
        message = f"{path}: no such file"
        raise DeltaError(f"{message} ({valid}; if the run has begun a new base since, load {BASE}/ again)") from None
    except (OSError, SafetensorError, ValueError) as error:
        if isinstance(error, DeltaError):
            raise
        raise DeltaError(f"{path}: cannot be read: {' '.join(str(error).split())} ({valid})") from error
    if _compute_checksum(record, tensors) != record.position.checksum:
        raise DeltaError(f"{path}: has changed since it was written ({valid})")
    return Delta(path, record, tensors)


def write_delta(directory: Path, before: Weights, after: Weights, position: Position, step: int) -> DeltaRecord:
    """Write the delta that leads from one state of a model's weights to another, whole or not at all.

    before, after: weights by name, of equal shapes. position: the state before. Raises OSError.
    """
    tensors: dict[str, torch.Tensor] = {}
    num_rows = 0
    for name, weight in after.items():
        if not name.startswith("tables."):
            tensors[name] = weight
            continue
        rows = find_changed_rows(before[name], weight)
        if len(rows):
            num_rows += len(rows)
            tensors |= {_name_rows(name): rows, name: weight[rows]}
    order = position.order + 1
    record = DeltaRecord(
        position=Position(base=position.base, order=order, checksum=""),
        follows=position.checksum,
        step=step,
        num_rows=num_rows,
    )
    record = _replace_checksum(record, _compute_checksum(record, tensors))
    path = directory / name_delta(order)
    part = path.with_suffix(".part")
    try:
        save_file(tensors, part, metadata={_RECORD: record.model_dump_json()})
    except SafetensorError as error:
        raise OSError(f"{path}: cannot be written: {error}") from error
    # safetensors lets nobody else read its files.
    part.chmod((directory / BASE / CONFIG).stat().st_mode)
    rename_synced(part, path)
    return record


def find_changed_rows(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Find the numbers [k] of the rows that differ in any bit. before, after: [rows, D] float32."""
    found = [torch.empty(0, dtype=torch.int64)]
    for start in range(0, len(after), _COMPARED_ROWS):
        one, other = (weight[start : start + _COMPARED_ROWS].view(torch.int32) for weight in (before, after))
        found.append((one != other).any(dim=1).nonzero()[:, 0] + start)
    return torch.cat(found)


def find_position(manifest: Manifest, config: SavedConfig) -> Position | None:
    """Return the state of a model by its manifest and settings; None if it is compressed and takes no deltas."""
    if config.compression is not None:
        return None
    checksum = manifest.files[WEIGHTS].sha256
    return config.position or Position(base=checksum, order=0, checksum=checksum)


def read_position(directory: Path) -> Position:
    """Read the state of the model in a directory. Raises OSError or ValueError if it is damaged or takes no deltas."""
    manifest = Manifest.model_validate_json((directory / MANIFEST).read_bytes())
    position = find_position(manifest, SavedConfig.model_validate_json((directory / CONFIG).read_bytes()))
    if position is None:
        raise DeltaError(f"{directory}: a compressed model takes no deltas (valid: the base of a run's deltas)")
    return position


def compact(base: Path, deltas: Sequence[Path], output: Path) -> SavedConfig:
    """Write a base with deltas applied as a whole model, and return its settings. Raises DeltaError and OSError.

    base: directory of a model whose files were compared with their checksums. deltas: in order. With any, the model has
    no metrics: nobody has measured it.
    """
    config = SavedConfig.model_validate_json((base / CONFIG).read_bytes())
    position, stored = read_position(base), load_file(base / WEIGHTS)
    step = config.step
    with write_whole(output) as part:
        ignored = shutil.ignore_patterns(WEIGHTS, MANIFEST, HUB_CARD)
        shutil.copytree(base, part, ignore=ignored, dirs_exist_ok=True)
        weights = map_new_weights(part / WEIGHTS, {name: tensor.shape for name, tensor in stored.items()}).tensors
        for name, tensor in stored.items():
            weights[name].copy_(tensor)
        for path in deltas:
            delta = read_delta(path)
            delta.check_follows(position)
            delta.apply(weights)
            position, step = delta.record.position, delta.record.step
        changed = config.model_copy(update={"position": position, "step": step})
        (part / CONFIG).write_text(changed.model_dump_json(indent=1))
        if deltas:
            _disown_metrics(part, config.step, step)
    return changed


def _disown_metrics(directory: Path, measured: int | None, step: int | None) -> None:
    """Leave out the metrics of a base, and let its card name the steps of its figures and of the weights."""
    (directory / METRICS).write_text("{}")
    card = directory / CARD
    head, separator, rest = card.read_text().partition("\n## ")
    note = f"The weights are of step {step}. Every figure in this card is of the model of step {measured}, their base."
    card.write_text(f"{head}\n## Deltas\n\n{note}\n{separator}{rest}")


def _name_rows(table: str) -> str:
    """Return the name of the numbers of the changed rows of `tables.<feature>.weight`."""
    return "rows." + table.removeprefix("tables.").removesuffix(".weight")


def _compute_checksum(record: DeltaRecord, tensors: Weights) -> str:
    """Compute the SHA-256 of what a delta says of itself, but for this checksum, and of its tensors."""
    digest = hashlib.sha256(_replace_checksum(record, "").model_dump_json().encode())
    for name in sorted(tensors):
        digest.update(f"{name} {list(tensors[name].shape)}".encode())
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()


def _replace_checksum(record: DeltaRecord, checksum: str) -> DeltaRecord:
    return record.model_copy(update={"position": record.position.model_copy(update={"checksum": checksum})})
