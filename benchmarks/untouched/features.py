"""Inputs of the references: columns encoded as an expert has classified them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.untouched.data_set import DataSet, Split

_MIN_COUNT = 2
"""Training rows that a category needs; rarer ones are treated like unknown ones."""
_MISSING = "~"
"""Category of missing values."""
_LONG_TAIL = 10.0
"""Ratio of the 99th percentile to the median from which a column of numbers is also given as logarithms."""
_LOG_SCALE = 3.0
"""Divisor of logarithms, so that they are about as large as standardised numbers."""
Columns = list[NDArray[np.float64]]


@dataclass(frozen=True)
class Features:
    """Encoded rows of one part of a data set."""

    one_hot: Any
    """Sparse matrix [n, features] for logistic regression: categories as indicators, numbers standardised."""
    codes_and_numbers: NDArray[np.float64]
    """Matrix [n, columns] for boosted trees: the codes of the categories, -1 for unknown ones, then the numbers."""
    num_categorical: int
    """Columns of codes, which come first."""
    labels: NDArray[np.int64]
    """[n] labels, 0 or 1."""


def make_features(data_set: DataSet, split: Split) -> tuple[Features, Features]:
    """Encode the training rows and the test rows. All that is learned is learned from the training rows."""
    frames = [_select_columns(data_set, frame) for frame in (split.train, split.test)]
    train = frames[0]
    categorical = [
        name for name in train.columns if train[name].dtype == pl.String or name in data_set.kinds.categorical
    ]
    numeric = [name for name in train.columns if name not in categorical]
    encoders = [_CategoryEncoder(train[name]) for name in categorical]
    scalers = [_NumberScaler(_read_numbers(train[name])) for name in numeric]
    made: list[Features] = []
    for frame, rows in zip(frames, (split.train, split.test), strict=True):
        codes = [encoder.encode(frame[name]) for encoder, name in zip(encoders, categorical, strict=True)]
        numbers = [_read_numbers(frame[name]) for name in numeric]
        blocks = [encoder.make_one_hot(column) for encoder, column in zip(encoders, codes, strict=True)]
        scaled = [column for scaler, one in zip(scalers, numbers, strict=True) for column in scaler.scale(one)]
        one_hot = sparse.hstack([*blocks, *([sparse.csr_matrix(np.column_stack(scaled))] if scaled else [])])
        labels = (rows[data_set.label].cast(pl.String) == data_set.positive).cast(pl.Int64).to_numpy()
        made.append(Features(one_hot.tocsr(), np.column_stack([*codes, *numbers]), len(categorical), labels))
    return made[0], made[1]


def _select_columns(data_set: DataSet, frame: pl.DataFrame) -> pl.DataFrame:
    """Add the derived columns, and leave the label and the ignored columns out."""
    derived = [expression.alias(name) for name, expression in data_set.kinds.derived.items()]
    return frame.with_columns(derived).drop(data_set.label, *data_set.kinds.ignored)


def _read_numbers(column: pl.Series) -> NDArray[np.float64]:
    """Read numbers [n], NaN where they are missing."""
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy()


class _CategoryEncoder:
    """Codes of the categories of one column."""

    def __init__(self, column: pl.Series) -> None:
        counts = _read_texts(column).value_counts(name="count")
        self._values = counts.filter(pl.col("count") >= _MIN_COUNT).drop("count").to_series().sort()

    def encode(self, column: pl.Series) -> NDArray[np.float64]:
        """Return the codes [n] of the values, -1 for those that are rare or unknown."""
        known = pl.Enum(self._values)
        codes = _read_texts(column).cast(known, strict=False).to_physical().cast(pl.Float64)
        return codes.fill_null(-1.0).to_numpy()

    def make_one_hot(self, codes: NDArray[np.float64]) -> Any:
        """Return the sparse matrix [n, categories] of indicators; unknown values have none."""
        rows = np.flatnonzero(codes >= 0)
        shape = (len(codes), len(self._values))
        return sparse.csr_matrix((np.ones(len(rows)), (rows, codes[rows].astype(np.int64))), shape=shape)


def _read_texts(column: pl.Series) -> pl.Series:
    return column.cast(pl.String).fill_null(_MISSING)


class _NumberScaler:
    """Mean, spread and tail of one column of numbers."""

    def __init__(self, numbers: NDArray[np.float64]) -> None:
        known = numbers[~np.isnan(numbers)]
        self._mean, self._deviation = (known.mean(), known.std()) if known.size else (0.0, 0.0)
        self._has_long_tail = bool(
            known.size and known.min() >= 0 and np.quantile(known, 0.99) > _LONG_TAIL * max(np.median(known), 1.0)
        )

    def scale(self, numbers: NDArray[np.float64]) -> Columns:
        """Return the numbers [n] standardised, whether they are missing, and logarithms where the tail is long."""
        missing = np.isnan(numbers)
        standardised = np.where(missing, 0.0, (numbers - self._mean) / (self._deviation or 1.0))
        columns = [standardised, missing.astype(np.float64)]
        if self._has_long_tail:
            columns.append(np.log1p(np.where(missing, 0.0, np.maximum(numbers, 0.0))) / _LOG_SCALE)
        return columns
