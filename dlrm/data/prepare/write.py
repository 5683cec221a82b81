"""Write the packed files: every part has fixed positions, so that parts can be written in any order and repeatedly."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrm.data.encode.encoders import Encoders
from dlrm.data.packed.layout import (
    DENSE,
    FURTHER_LABELS,
    IDS,
    LABELS,
    WEIGHTS,
    FileMeta,
    PackedMeta,
    Split,
    get_bag_offsets_name,
    get_bag_values_name,
    get_reused_name,
)
from dlrm.data.prepare.assign import Assignment
from dlrm.data.prepare.measure import SPLITS, PartMeasure, SplitMeasure
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.prepare.stage import Part, StagedRows
from dlrm.data.raw.block import CategoricalValues
from dlrm.data.threads import Workers


@dataclass(frozen=True)
class Positions:
    """Positions at which the rows of one part begin in the files of one split."""

    row: int
    """Number of the part's first row within the split."""
    values: dict[int, int]
    """Number of the part's first id within the split, by index of the feature with bags."""

    def advance(self, measure: SplitMeasure, meta: PackedMeta) -> "Positions":
        values = {feature: start + _count_ids(feature, measure, meta) for feature, start in self.values.items()}
        return Positions(self.row + measure.num_rows, values)


@dataclass(frozen=True)
class PackedFiles:
    """The files of a packed directory, open for writing at any position."""

    directory: Path
    meta: PackedMeta
    """Description of the directory; its `files` are not used."""

    def write_array(self, split: Split, name: str, array: NDArray[Any], start: int) -> None:
        """Write `array` to the file `name` of a split, from byte offset `start` on."""
        content = np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")
        # Opened for every write, because there may be more files than a process may have open.
        with (self.directory / split / name).open("r+b", buffering=0) as file:
            while content:
                written = os.pwrite(file.fileno(), content, start)
                content, start = content[written:], start + written


def write_rows(
    rows: StagedRows,
    encoders: Encoders,
    assigned: Mapping[int, Assignment],
    measures: Sequence[PartMeasure],
    directory: Path,
    meta: PackedMeta,
    workers: Workers,
    progress: PreparationProgress,
) -> None:
    """Create the files of `directory` and write every row of `rows` into them."""
    progress.start("writing", 0.95, rows.num_good_rows)
    _create_files(directory, compute_file_sizes(meta, measures))
    files = PackedFiles(directory, meta)
    work = zip(rows.parts, _compute_positions(meta, measures), strict=True)
    for part in workers.map(partial(_write_part, rows, _Ids(encoders, assigned), files), work):
        progress.advance(part.record.num_good_rows, part.record.num_good_rows)


def compute_file_sizes(meta: PackedMeta, measures: Sequence[PartMeasure]) -> dict[str, int]:
    """Compute the bytes of every file of rows, by path relative to the directory."""
    sizes: dict[str, int] = {}
    for split in SPLITS:
        num_rows = meta.splits[split].num_rows
        row_bytes = {LABELS: 4, DENSE: 4 * len(meta.dense), IDS: meta.id_dtype.itemsize * len(meta.single_features)}
        if meta.has_weights:
            row_bytes[WEIGHTS] = 4
        if meta.num_further_labels:
            row_bytes[FURTHER_LABELS] = 4 * meta.num_further_labels
        sizes |= {f"{split}/{name}": num_rows * size for name, size in row_bytes.items()}
        for feature in meta.bag_features:
            num_ids = sum(_count_ids(feature, measure.splits[split], meta) for measure in measures)
            sizes[f"{split}/{get_bag_values_name(feature)}"] = num_ids * meta.id_dtype.itemsize
            sizes[f"{split}/{get_bag_offsets_name(feature)}"] = (num_rows + 1) * 8
    return sizes


def _count_ids(feature: int, measure: SplitMeasure, meta: PackedMeta) -> int:
    return measure.num_values[feature] * meta.features[feature].ids_per_value


def flush_and_hash_files(
    directory: Path, names: Sequence[str], workers: Workers, progress: PreparationProgress
) -> dict[str, FileMeta]:
    """Flush files to disk, and return their sizes in bytes and SHA-256, by path relative to `directory`."""
    sizes = {name: (directory / name).stat().st_size for name in names}
    progress.start("checksums", 1.0, sum(sizes.values()))
    found: dict[str, FileMeta] = {}
    for name, digest in zip(names, workers.map(lambda name: _flush_and_hash(directory / name), names), strict=True):
        found[name] = FileMeta(num_bytes=sizes[name], sha256=digest)
        progress.advance(sizes[name])
    return found


def _compute_positions(meta: PackedMeta, measures: Sequence[PartMeasure]) -> Iterator[dict[Split, Positions]]:
    """Yield the positions of every part in both splits, in the order of the parts."""
    positions: dict[Split, Positions] = {split: Positions(0, dict.fromkeys(meta.bag_features, 0)) for split in SPLITS}
    for measure in measures:
        yield positions
        positions = {split: position.advance(measure.splits[split], meta) for split, position in positions.items()}


def _create_files(directory: Path, sizes: dict[str, int]) -> None:
    """Create files of zeros. sizes: bytes of each file, by path relative to `directory`."""
    for name, size in sizes.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        # glibc reads the file where the file system cannot allocate space itself.
        with path.open("w+b") as file:
            file.truncate(size)
            if size:
                # Allocate the space now, so that a full disk is found at once and not after hours.
                os.posix_fallocate(file.fileno(), 0, size)


def write_reused(assigned: Mapping[int, Assignment], directory: Path) -> list[str]:
    """Write which table rows change hands, and when; return the names of the files, relative to `directory`."""
    names = {f"train/{get_reused_name(feature)}": assignment.reused for feature, assignment in assigned.items()}
    for name, reused in names.items():
        reused.astype("<i8").tofile(directory / name)
    return [*names]


@dataclass(frozen=True)
class _Ids:
    """Table rows of raw values."""

    encoders: Encoders
    assigned: Mapping[int, Assignment]

    def encode(self, part: Part, feature: int, column: CategoricalValues) -> NDArray[np.int64]:
        """Return the table rows of the values of a categorical column of a part."""
        if feature in self.assigned:
            return self.assigned[feature].read(part, len(column.codes))
        return self.encoders.encode_ids(feature, column)


def _write_part(rows: StagedRows, to_ids: _Ids, files: PackedFiles, work: tuple[Part, dict[Split, Positions]]) -> Part:
    part, positions = work
    staged = rows.open(part)
    is_held_out = rows.is_held_out(part, staged)
    dense = to_ids.encoders.encode_dense(staged.table)
    further = [(FURTHER_LABELS, np.stack(labels, axis=1))] if (labels := staged.further_labels) else []
    single = files.meta.single_features
    ids = np.empty((len(staged.labels), len(single)), dtype=files.meta.id_dtype)
    for column, feature in enumerate(single):
        ids[:, column] = to_ids.encode(part, feature, staged.categorical(feature))
    for split in SPLITS:
        is_in = is_held_out == (split == "eval")
        position = positions[split]
        files.write_array(split, LABELS, staged.labels[is_in], 4 * position.row)
        if staged.weights is not None:
            files.write_array(split, WEIGHTS, staged.weights[is_in], 4 * position.row)
        for name, array in ((DENSE, dense), (IDS, ids), *further):
            # np.compress, because array[is_in] is several times slower on whole rows.
            selected = np.compress(is_in, array, axis=0)
            files.write_array(split, name, selected, position.row * array.shape[1] * array.itemsize)
        for feature in files.meta.bag_features:
            column = staged.categorical(feature)
            values, lengths = to_ids.encode(part, feature, column), to_ids.encoders.count_ids(feature, column)
            _write_bags(values, lengths, files, split, is_in, position, feature)
    return part


def _write_bags(
    ids: NDArray[np.int64],
    lengths: NDArray[np.int32],
    files: PackedFiles,
    split: Split,
    is_in: NDArray[np.bool_],
    position: Positions,
    feature: int,
) -> None:
    start = position.values[feature]
    values = ids[np.repeat(is_in, lengths)].astype(files.meta.id_dtype)
    files.write_array(split, get_bag_values_name(feature), values, start * values.itemsize)
    ends = start + np.cumsum(lengths[is_in], dtype=np.int64)
    # The first offset, 0, needs no write: files are created with zeros.
    files.write_array(split, get_bag_offsets_name(feature), ends, 8 * (position.row + 1))


def _flush_and_hash(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return digest
