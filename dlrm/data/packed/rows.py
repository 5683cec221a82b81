"""The rows of one split of a packed directory, read where they lie."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrm.data.errors import DataError
from dlrm.data.packed.layout import DENSE, IDS, LABELS, WEIGHTS, PackedMeta, Split, bag_offsets, bag_values
from dlrm.data.packed.mapped import MappedArray
from dlrm.data.rows import DataSchema, Rows, Runs
from sharding.jagged import JaggedIds

MAX_MAPPED_BYTES = 320 << 20
"""Of pages that stay mapped, which count as this process's memory: a little more than a window of the sample order."""
MAX_AREAS = 1 << 14
"""Of all files; the areas between them count too, and with 65,530 a process on Linux can do no more."""
_PIECE_ROWS = 4096
"""Rows gathered at a time: what is transposed stays in a core's cache."""
_GRAIN_ROWS = 128
"""Rows whose pages are accounted for together: fewer than a block of the order has, mostly."""

FLOAT, OFFSET = np.dtype(np.float32), np.dtype(np.int64)


@dataclass(frozen=True)
class _Lists:
    """One multi-hot feature."""

    offsets: MappedArray
    """[n + 1]"""
    values: MappedArray

    def read(self, row_numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Lengths [n] and ids [sum of lengths] of these rows, at least one."""
        starts = self.offsets.items[row_numbers]
        lengths = self.offsets.items[row_numbers + 1] - starts
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1], dtype=np.int64)
        places += np.repeat(starts - (ends - lengths), lengths)
        return lengths, self.values.items[places]

    def runs(self, rows: Runs) -> Runs:
        """The values of these rows."""
        return Runs(self.offsets.items[rows.starts], self.offsets.items[rows.stops])


class PackedRows:
    """A RowSource over mapped files.

    About MAX_MAPPED_BYTES stay mapped, however many rows there are: rows that `look_ahead` has told of are read in any
    order, others in runs, since the kernel maps what lies around them too.
    """

    def __init__(self, directory: Path, split: Split, meta: PackedMeta) -> None:
        """Raises DataError naming the file that is missing or not as long as `meta` says."""
        self.schema: DataSchema = meta.schema_of_rows
        self._directory = directory / split
        self.num_rows = meta.splits[split].num_rows
        self._files: list[MappedArray] = []

        def mapped(name: str, dtype: np.dtype[Any], *shape: int) -> MappedArray:
            noted = meta.files.get(f"{split}/{name}")
            array = MappedArray(directory / split / name, dtype, shape, noted.num_bytes if noted else None)
            self._files.append(array)
            return array

        def lists(feature: int) -> _Lists:
            offsets = mapped(bag_offsets(feature), OFFSET, n + 1)
            return _Lists(offsets, mapped(bag_values(feature), meta.id_dtype, int(offsets.items[-1])))

        n, self._single = self.num_rows, meta.single_features
        self._labels = mapped(LABELS, FLOAT, n)
        self._weights = mapped(WEIGHTS, FLOAT, n) if meta.has_weights else None
        self._dense = mapped(DENSE, FLOAT, n, len(meta.dense))
        self._ids = mapped(IDS, meta.id_dtype, n, len(self._single))
        self._lists = {feature: lists(feature) for feature in meta.multi_hot_features}
        self.row_bytes = -(-sum(file.num_bytes for file in self._files) // max(n, 1))
        self._is_mapped = np.zeros(-(-n // _GRAIN_ROWS), dtype=np.bool_)
        self._num_mapped = 0
        """Grains that are."""

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        """See RowSource. Raises IndexError where a number is none of a row, DataError where an id is none of its table.

        An id beyond a table would be passed over without a word where it is looked up.
        """
        num_rows = len(row_numbers)
        if num_rows and not (row_numbers.min() >= 0 and row_numbers.max() < self.num_rows):
            raise IndexError(f"row numbers must lie within 0 to {self.num_rows - 1}")
        labels = np.empty(num_rows, dtype=np.float32)
        weights = None if self._weights is None else np.empty(num_rows, dtype=np.float32)
        dense = np.empty((num_rows, self.schema.num_dense), dtype=np.float32)
        single = np.empty((len(self._single), num_rows), dtype=np.int64)
        lengths = np.ones((len(self.schema.features), num_rows), dtype=np.int32)
        lists: dict[int, list[NDArray[Any]]] = {feature: [] for feature in self._lists}
        for start in range(0, num_rows, _PIECE_ROWS):
            piece = slice(start, start + _PIECE_ROWS)
            wanted = row_numbers[piece]
            self._make_room(wanted)
            # The numbers were checked above; the default mode would gather into a buffer first.
            self._labels.items.take(wanted, out=labels[piece], mode="clip")
            self._dense.items.take(wanted, axis=0, out=dense[piece], mode="clip")
            if self._weights is not None and weights is not None:
                self._weights.items.take(wanted, out=weights[piece], mode="clip")
            single[:, piece] = self._ids.items.take(wanted, axis=0).T
            for feature, of_feature in self._lists.items():
                lengths[feature, piece], ids = of_feature.read(wanted)
                lists[feature].append(ids)
                self._check_ids(feature, bag_values(feature), ids)
        for feature, ids in zip(self._single, single, strict=True):
            self._check_ids(feature, IDS, ids)
        return Rows(labels, dense, JaggedIds(self._in_order(single, lists), lengths), weights)

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        """See RowSource."""
        max_areas = MAX_AREAS // len(self._files)
        for file in (self._labels, self._weights, self._dense, self._ids):
            if file is not None:
                file.expect(now, soon, max_areas)
        for of_feature in self._lists.values():
            of_feature.offsets.expect(now, soon, max_areas)
            of_feature.values.expect(of_feature.runs(now), of_feature.runs(soon), max_areas)

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> None:  # noqa: ARG002
        """None: nobody knows what drew the labels."""
        return

    def _check_ids(self, place: int, file: str, ids: NDArray[Any]) -> None:
        """Raise DataError where one of them is no row of the table of the feature at this place."""
        feature = self.schema.features[place]
        # Without their signs negative ones are the largest, and one pass finds both.
        unsigned = ids.view(f"u{ids.itemsize}")
        if len(ids) and unsigned.max() >= feature.num_ids:
            raise DataError(
                f"holds the id {ids[unsigned.argmax()]}, and its table has {feature.num_ids} rows",
                self._directory / file,
                field=feature.name,
                valid=f"0 to {feature.num_ids - 1}, as its meta.json says; prepare the data again",
            )

    def _in_order(self, single: NDArray[np.int64], lists: dict[int, list[NDArray[Any]]]) -> NDArray[np.int64]:
        """The ids of all features, in their order."""
        if not lists:
            return single.reshape(-1)
        parts = {feature: [ids] for feature, ids in zip(self._single, single, strict=True)} | lists
        in_order = [part for feature in sorted(parts) for part in parts[feature]]
        return np.concatenate([np.empty(0, dtype=np.int64), *in_order], dtype=np.int64)

    def _make_room(self, row_numbers: NDArray[np.int64]) -> None:
        """Account for the pages of rows that are about to be read; let go of all others once they are too many."""
        grains = row_numbers // _GRAIN_ROWS
        self._num_mapped += len(np.unique(grains[~self._is_mapped[grains]]))
        if self._num_mapped * _GRAIN_ROWS * self.row_bytes > MAX_MAPPED_BYTES:
            for file in self._files:
                file.let_go()
            self._is_mapped[:] = False
            self._num_mapped = len(np.unique(grains))
        self._is_mapped[grains] = True
