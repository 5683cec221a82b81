"""The rows of consecutive pieces of a log as one source."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlrm.data.errors import DataError
from dlrm.data.rows import DataSchema, NumpyIds, Rows, RowSource, Runs
from sharding.jagged import JaggedIds


class JoinedRows:
    """A RowSource over the rows of several others, one after another."""

    def __init__(self, sources: Sequence[RowSource], first_row: int) -> None:
        """Join at least one source. first_row: number of their first row; those before it no longer exist."""
        self._sources = sources
        self._starts = first_row + np.cumsum([0, *(source.num_rows for source in sources)])
        self.num_rows = int(self._starts[-1])
        self.schema: DataSchema = sources[0].schema
        num_bytes = sum(source.row_bytes * source.num_rows for source in sources)
        self.row_bytes = -(-num_bytes // max(self.num_rows - first_row, 1))

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        """Read rows, see RowSource. Raises DataError if some of them no longer exist."""
        parts = self._split(row_numbers)
        if len(parts) == 1:
            return self._sources[parts[0][0]].read(row_numbers - self._starts[parts[0][0]])
        found = [(self._sources[k].read(row_numbers[places] - self._starts[k]), places) for k, places in parts]
        return _merge(found, len(row_numbers))

    def read_weights(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Read weights, see RowSource."""
        weights = np.empty(len(row_numbers), dtype=np.float32)
        for k, places in self._split(row_numbers):
            found = self._sources[k].read_weights(row_numbers[places] - self._starts[k])
            if found is None:
                return None
            weights[places] = found
        return weights

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        """Pass the hint on to the sources that have these rows, see RowSource."""
        for k, source in enumerate(self._sources):
            cut = [self._cut(runs, k) for runs in (now, soon)]
            if any(len(runs.starts) for runs in cut):
                source.look_ahead(*cut)

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> None:  # noqa: ARG002
        """Return None: the probabilities of these labels are not known."""
        return

    def _split(self, row_numbers: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
        """Return the sources of the rows, each with the places of its rows."""
        numbers = np.searchsorted(self._starts, row_numbers, side="right") - 1
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self._sources)):
            message = f"rows {self._starts[0]:,} to {self.num_rows - 1:,} are there, and others are asked for"
            valid = "a checkpoint of a later step: rows that no checkpoint needed were removed"
            raise DataError(message, field="data.follow", valid=valid)
        return [(int(k), np.flatnonzero(numbers == k)) for k in np.unique(numbers)] or [(0, np.empty(0, np.int64))]

    def _cut(self, runs: Runs, source: int) -> Runs:
        """Return what the ranges have of a source, by its own numbers."""
        first, end = self._starts[source], self._starts[source + 1]
        starts, ends = np.clip(runs.starts, first, end) - first, np.clip(runs.ends, first, end) - first
        return Runs(starts[starts < ends], ends[starts < ends])


def _merge(parts: Sequence[tuple[Rows, NDArray[np.int64]]], num_rows: int) -> Rows:
    """Put the rows of several parts at their places among `num_rows` rows."""

    def place(arrays: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        merged = np.empty((num_rows, *arrays[0].shape[1:]), dtype=np.float32)
        for array, (_, places) in zip(arrays, parts, strict=True):
            merged[places] = array
        return merged

    weights = [rows.weights for rows, _ in parts if rows.weights is not None]
    further = [rows.further_labels for rows, _ in parts if rows.further_labels is not None]
    return Rows(
        place([rows.labels for rows, _ in parts]),
        place([rows.dense for rows, _ in parts]),
        _merge_ids(parts, num_rows),
        place(weights) if weights else None,
        place(further) if further else None,
    )


def _merge_ids(parts: Sequence[tuple[Rows, NDArray[np.int64]]], num_rows: int) -> NumpyIds:
    lengths = np.empty((len(parts[0][0].ids.lengths), num_rows), dtype=np.int32)
    for rows, places in parts:
        lengths[:, places] = rows.ids.lengths
    ends = np.cumsum(lengths, axis=None, dtype=np.int64)
    starts = (ends - lengths.reshape(-1)).reshape(lengths.shape)
    values = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    for rows, places in parts:
        counts = rows.ids.lengths.reshape(-1)
        before = np.cumsum(counts, dtype=np.int64) - counts
        shifts = np.repeat(starts[:, places].reshape(-1) - before, counts)
        values[np.arange(len(shifts)) + shifts] = rows.ids.values
    return JaggedIds(values, lengths)
