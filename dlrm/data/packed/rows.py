"""The rows of one split of a packed directory, and the arrays in files, mapped into memory, that they are read from."""

import ctypes
import errno
import mmap
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrm.config import format_count
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import (
    DENSE,
    FURTHER_LABELS,
    IDS,
    LABELS,
    WEIGHTS,
    PackedMeta,
    Split,
    get_bag_offsets_name,
    get_bag_values_name,
)
from dlrm.data.rows import DataSchema, Rows, Runs
from dlrm.data.threads import PieceThreads
from sharding.jagged import JaggedIds

_LIBC = ctypes.CDLL(None, use_errno=True)
"""The C library; calls of its functions release Python's lock."""
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_ADVICE_BYTES = 1 << 17
"""Bytes per call of madvise(MADV_WILLNEED): on most disks the kernel reads no more ahead on one call."""


class MappedArray:
    """An array in one file; the kernel reads its pages when they are accessed."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], listed_bytes: int | None) -> None:
        """Map the file at `path`, which is row-major.

        listed_bytes: size of the file in meta.json; None if the file is not listed there. Raises DataError if the
        file cannot be opened, or if its size differs from `listed_bytes` or does not fit `shape`.
        """
        num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        try:
            with path.open("rb") as file:
                self.num_bytes = path.stat().st_size
                if not self.num_bytes == num_bytes == listed_bytes:
                    valid = f"{num_bytes:,}, as its meta.json says; prepare the data again"
                    raise DataError(f"has {format_count(self.num_bytes, 'byte')}", path, valid=valid)
                # An empty file cannot be mapped.
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if num_bytes else None
        except OSError as error:
            if error.errno == errno.EMFILE:
                message = "cannot be opened in addition to the others: too many files are open"
                valid = "fewer multi-hot columns, or a higher limit: `ulimit -n`"
                raise DataError(message, path, valid=valid) from None
            valid = "a file that `dlrm prepare` has written"
            raise DataError(f"not readable: {error.strerror}", path, valid=valid) from None
        self._announced: set[tuple[int, int]] = set()
        """Byte ranges [start, end) of the rows that the last call of `read_ahead` named."""
        self.items: NDArray[Any] = np.frombuffer(self._map or b"", dtype=dtype).reshape(shape)
        self._address = self.items.ctypes.data

    def drop_pages(self) -> None:
        """Release every page from the memory of this process; the kernel may keep the pages in its page cache."""
        if self._map is not None:
            self._advise(mmap.MADV_DONTNEED, 0, self.num_bytes)

    def read_ahead(self, now: Runs, soon: Runs, max_areas: int) -> None:
        """Make the kernel fetch these rows from disk, without waiting and without mapping them.

        Ranges that the previous call named are not fetched again. Each range of `now` becomes a memory area of its own
        (by MADV_RANDOM), because an access to a row maps the whole folio around it, up to 2 MiB, unless the area is
        smaller (Linux 6.18); for the runs of a window this would map several times the rows that are read. If `now`
        has more than `max_areas` ranges, no areas are made and the larger mapping is accepted.
        """
        if self._map is None:
            return
        current = self._list_areas(now)
        self._advise(mmap.MADV_NORMAL, 0, self.num_bytes)
        if len(current) <= max_areas:
            for start, end in sorted(current):
                self._advise(mmap.MADV_RANDOM, start, end - start)
        announced = current | self._list_areas(soon)
        for start, end in sorted(announced - self._announced):
            for offset in range(start, end, _ADVICE_BYTES):
                self._advise(mmap.MADV_WILLNEED, offset, min(_ADVICE_BYTES, end - offset))
        self._announced = announced

    def _advise(self, advice: int, start: int, num_bytes: int) -> None:
        """Advise the kernel how these bytes are used.

        `mmap.madvise` would hold Python's lock, and a window takes thousands of calls: training would hardly go on.
        """
        if _LIBC.madvise(self._address + start, num_bytes, advice):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _list_areas(self, rows: Runs) -> set[tuple[int, int]]:
        """List the byte ranges [start, end) of these rows, each extended down to the start of its first page."""
        row_bytes = self.items.strides[0]
        starts = (rows.starts * row_bytes // mmap.PAGESIZE * mmap.PAGESIZE).tolist()
        areas = zip(starts, (rows.ends * row_bytes).tolist(), strict=True)
        return {(start, end) for start, end in areas if start < end}


_SPARE = 256
"""Number of further files that other code of this process may open meanwhile."""


def allow_open_files(num_files: int) -> None:
    """Increase the limit by what `num_files` more open files need, as far as allowed: each mapping keeps one open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + num_files + _SPARE  # noqa: PTH208
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


MAX_MAPPED_BYTES = 320 << 20
"""Upper bound on the bytes of pages that stay mapped (they count as this process's memory): a little more than one
shuffle window of the sample order."""
MAX_AREAS = 1 << 14
"""Bound on the memory areas that `look_ahead` makes in all files. The areas between them count, too, and Linux allows
a process 65,530 in all (default of vm.max_map_count)."""
_PIECE_ROWS = 4096
"""Rows gathered at a time, so that the transposed ids stay in a core's cache."""
_GRAIN_ROWS = 128
"""Rows of a grain, the unit in which mapped pages are counted: usually fewer than a block of the sample order has."""

FLOAT, OFFSET = np.dtype(np.float32), np.dtype(np.int64)


@dataclass(frozen=True)
class _Bags:
    """Ids of one multi-hot feature of all n rows."""

    offsets: MappedArray
    """[n + 1] positions in `values` at which the rows begin, and the end of the last row."""
    values: MappedArray

    def read(self, row_numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Read the lengths [n] and ids [sum of lengths] of the rows with these numbers [n], n at least 1."""
        starts = self.offsets.items[row_numbers]
        lengths = self.offsets.items[row_numbers + 1] - starts
        ends = np.cumsum(lengths)
        positions = np.arange(ends[-1], dtype=np.int64)
        positions += np.repeat(starts - (ends - lengths), lengths)
        return lengths, self.values.items[positions]

    def get_value_runs(self, rows: Runs) -> Runs:
        """Return the ranges in `values` that hold the ids of these rows."""
        return Runs(self.offsets.items[rows.starts], self.offsets.items[rows.ends])


class PackedRows:
    """A RowSource over mapped files.

    About MAX_MAPPED_BYTES stay mapped, for any number of rows, if callers read rows that `look_ahead` announced in any
    order, but other rows only in contiguous runs: the kernel also maps the pages around those that are accessed.
    """

    def __init__(self, directory: Path, split: Split, meta: PackedMeta, num_threads: int = 1) -> None:
        """Map the files of a split. Raises DataError, with the file's name, if a file is missing or has another size.

        num_threads: that read the rows of one call; what they read does not depend on it.
        """
        self.schema: DataSchema = meta.schema_of_rows
        self._directory = directory / split
        self.num_rows = meta.splits[split].num_rows
        self._files: list[MappedArray] = []

        def map_file(name: str, dtype: np.dtype[Any], *shape: int) -> MappedArray:
            file_meta = meta.files.get(f"{split}/{name}")
            array = MappedArray(directory / split / name, dtype, shape, file_meta.num_bytes if file_meta else None)
            self._files.append(array)
            return array

        def map_bags(feature: int) -> _Bags:
            offsets = map_file(get_bag_offsets_name(feature), OFFSET, n + 1)
            return _Bags(offsets, map_file(get_bag_values_name(feature), meta.id_dtype, int(offsets.items[-1])))

        n, self._single = self.num_rows, meta.single_features
        self._labels = map_file(LABELS, FLOAT, n)
        self._weights = map_file(WEIGHTS, FLOAT, n) if meta.has_weights else None
        num_further = meta.num_further_labels
        self._further_labels = map_file(FURTHER_LABELS, FLOAT, n, num_further) if num_further else None
        self._dense = map_file(DENSE, FLOAT, n, len(meta.dense))
        self._ids = map_file(IDS, meta.id_dtype, n, len(self._single))
        self._unsigned = np.dtype(f"u{meta.id_dtype.itemsize}")
        self._num_single_ids = np.array([self.schema.features[feature].num_ids for feature in self._single])
        self._lists = {feature: map_bags(feature) for feature in meta.bag_features}
        self.row_bytes = -(-sum(file.num_bytes for file in self._files) // max(n, 1))
        self._is_mapped = np.zeros(-(-n // _GRAIN_ROWS), dtype=np.bool_)
        self._num_mapped = 0
        """Number of grains that are mapped."""
        self._count_lock = Lock()
        """Lock of the two counts above."""
        self._threads = PieceThreads(num_threads)

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        """Read rows, see RowSource.

        Raises IndexError if a row number is out of range, and DataError if an id is not a row of its table: the
        lookup on a GPU would read other memory for such an id.
        """
        num_rows = len(row_numbers)
        if num_rows and not (row_numbers.min() >= 0 and row_numbers.max() < self.num_rows):
            raise IndexError(f"row numbers must be within 0 to {self.num_rows - 1}")
        labels = np.empty(num_rows, dtype=np.float32)
        weights = None if self._weights is None else np.empty(num_rows, dtype=np.float32)
        further = None
        if self._further_labels is not None:
            further = np.empty((num_rows, self._further_labels.items.shape[1]), dtype=np.float32)
        dense = np.empty((num_rows, self.schema.num_dense), dtype=np.float32)
        single = np.empty((len(self._single), num_rows), dtype=np.int64)
        lengths = np.ones((len(self.schema.features), num_rows), dtype=np.int32)

        def read_piece(start: int) -> dict[int, NDArray[Any]]:
            piece = slice(start, start + _PIECE_ROWS)
            numbers = row_numbers[piece]
            self._release_excess_pages(numbers)
            # The numbers were checked above; the default mode would gather into a buffer first.
            self._labels.items.take(numbers, out=labels[piece], mode="clip")
            self._dense.items.take(numbers, axis=0, out=dense[piece], mode="clip")
            if self._weights is not None and weights is not None:
                self._weights.items.take(numbers, out=weights[piece], mode="clip")
            if self._further_labels is not None and further is not None:
                self._further_labels.items.take(numbers, axis=0, out=further[piece], mode="clip")
            taken = self._ids.items.take(numbers, axis=0)
            # As unsigned numbers, since negative ids are the largest then.
            if (_find_largest(taken.view(self._unsigned)) >= self._num_single_ids).any():
                for feature, ids in zip(self._single, taken.T, strict=True):
                    self._check_ids(feature, IDS, ids)
            single[:, piece] = taken.T
            lists: dict[int, NDArray[Any]] = {}
            for feature, bags in self._lists.items():
                lengths[feature, piece], lists[feature] = bags.read(numbers)
                self._check_ids(feature, get_bag_values_name(feature), lists[feature])
                self._check_lengths(feature, lengths[feature, piece])
            return lists

        lists = self._threads.map(read_piece, range(0, num_rows, _PIECE_ROWS))
        return Rows(labels, dense, JaggedIds(self._concatenate_ids(single, lists), lengths), weights, further)

    def read_weights(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Read weights, see RowSource."""
        if self._weights is None:
            return None
        self._release_excess_pages(row_numbers)
        return self._weights.items[row_numbers]

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        """Announce the rows to the mapped files, see RowSource."""
        max_areas = MAX_AREAS // len(self._files)
        for file in (self._labels, self._further_labels, self._weights, self._dense, self._ids):
            if file is not None:
                file.read_ahead(now, soon, max_areas)
        for bags in self._lists.values():
            bags.offsets.read_ahead(now, soon, max_areas)
            bags.values.read_ahead(bags.get_value_runs(now), bags.get_value_runs(soon), max_areas)

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> None:  # noqa: ARG002
        """Return None: the probabilities of these labels are not known."""
        return

    def _check_ids(self, index: int, file: str, ids: NDArray[Any]) -> None:
        """Raise DataError if an id is not a row of the table of feature number `index`."""
        feature = self.schema.features[index]
        # Read as unsigned numbers, negative ids are the largest, so that one pass finds ids out of range at both ends.
        unsigned = ids.view(f"u{ids.itemsize}")
        if len(ids) and unsigned.max() >= feature.num_ids:
            raise DataError(
                f"contains the id {ids[unsigned.argmax()]}, but its table has {format_count(feature.num_ids, 'row')}",
                self._directory / file,
                field=feature.name,
                valid=f"0 to {feature.num_ids - 1}, as its meta.json says; prepare the data again",
            )

    def _check_lengths(self, index: int, lengths: NDArray[np.int32]) -> None:
        """Raise DataError if a sequence of feature number `index` is too long: it has no more positions."""
        feature = self.schema.features[index]
        if feature.sequence is not None and len(lengths) and lengths.max() > feature.sequence.max_length:
            raise DataError(
                f"contains a sequence of {format_count(int(lengths.max()), 'id')}",
                self._directory / get_bag_offsets_name(index),
                field=feature.name,
                valid=f"up to {feature.sequence.max_length}, as its meta.json says; prepare the data again",
            )

    def _concatenate_ids(self, single: NDArray[np.int64], lists: list[dict[int, NDArray[Any]]]) -> NDArray[np.int64]:
        """Concatenate the ids of all features, in the order of the features. lists: multi-hot ones of each piece."""
        if not self._lists:
            return single.reshape(-1)
        parts = {feature: [ids] for feature, ids in zip(self._single, single, strict=True)}
        parts |= {feature: [of_piece[feature] for of_piece in lists] for feature in self._lists}
        ordered = [part for feature in sorted(parts) for part in parts[feature]]
        return np.concatenate([np.empty(0, dtype=np.int64), *ordered], dtype=np.int64)

    def _release_excess_pages(self, row_numbers: NDArray[np.int64]) -> None:
        """Count the pages of rows that are about to be read; once too many are mapped, release all pages first."""
        grains = row_numbers // _GRAIN_ROWS
        with self._count_lock:
            self._num_mapped += len(np.unique(grains[~self._is_mapped[grains]]))
            if self._num_mapped * _GRAIN_ROWS * self.row_bytes > MAX_MAPPED_BYTES:
                for file in self._files:
                    file.drop_pages()
                self._is_mapped[:] = False
                self._num_mapped = len(np.unique(grains))
            self._is_mapped[grains] = True


def _find_largest(ids: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.unsignedinteger[Any]]:
    """Find the largest id of each feature in ids [n, F], n at least 1.

    numpy takes rows of F ids one at a time, which are short, so most of them are compared 64 rows at a time first.
    """
    num_wide, num_features = len(ids) // 64, ids.shape[1]
    wide = ids[: 64 * num_wide].reshape(num_wide, 64 * num_features).max(axis=0, initial=0)
    return np.concatenate([wide.reshape(64, num_features), ids[64 * num_wide :]]).max(axis=0)
