"""Search for columns with the same content."""

import hashlib
from collections import defaultdict

import numpy as np

from dlrm.data.inspect.columns import CategoricalColumn, DenseColumn


class SameColumns:
    """Finder of columns with the same content: a value of one always occurs with the same value of the other."""

    def __init__(self) -> None:
        self._names: defaultdict[bytes, list[str]] = defaultdict(list)

    def add_dense(self, column: DenseColumn) -> None:
        # Make the bytes of all NaNs equal, and those of 0.0 and -0.0.
        values = np.where(np.isnan(column.values), np.nan, column.values + 0.0)
        self._names[hashlib.blake2b(b"dense" + values.tobytes()).digest()].append(column.name)

    def add_categorical(self, column: CategoricalColumn) -> None:
        """Add a column. Values are identified by the order in which they first occur, not by their names."""
        if len(column.distinct) < 2:
            # Constant columns have a warning of their own.
            return
        _, first, code_of = np.unique(column.codes, return_index=True, return_inverse=True)
        code_by_first_use = np.empty(len(first), dtype=np.int64)
        code_by_first_use[np.argsort(first)] = np.arange(len(first))
        content = code_by_first_use[code_of].tobytes() + (b"" if column.lengths is None else column.lengths.tobytes())
        self._names[hashlib.blake2b(content).digest()].append(column.name)

    def find(self) -> list[tuple[list[str], str]]:
        """Return each group of columns with the same content: their names, and a message."""
        return [
            (names, f"{', '.join(names[:-1])} and {names[-1]} have the same content in every row: keep one of them")
            for names in self._names.values()
            if len(names) > 1
        ]
