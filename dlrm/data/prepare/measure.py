"""Statistics of every part, measured before encoding: sizes of both splits, labels, weights, dense columns."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dlrm.data.encode.dense import is_missing_as_before
from dlrm.data.packed.layout import Split
from dlrm.data.prepare.part_files import Part, StagedPart, StagedRows
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.threads import Workers

SPLITS: tuple[Split, Split] = ("train", "eval")


@dataclass(frozen=True)
class Moments:
    """Mean and variance of the present values of a column over some rows; `+` merges the moments of disjoint rows.

    The merging follows Chan, Golub, LeVeque: "Updating Formulae and a Pairwise Algorithm for Computing Sample
    Variances", 1979.
    """

    num_present: int = 0
    num_missing: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean."""

    @classmethod
    def from_values(cls, values: NDArray[np.float64]) -> "Moments":
        """Compute the moments of `values`: [n], finite, NaN where missing."""
        present = values[~np.isnan(values)]
        if not len(present):
            return cls(num_missing=len(values))
        # Deviations are taken from a value of the column, so that equal values give a variance of exactly 0.
        deviations = present - present[0]
        mean = float(deviations.mean())
        squares = float(np.square(deviations - mean).sum())
        return cls(len(present), len(values) - len(present), float(present[0]) + mean, squares)

    def __add__(self, other: "Moments") -> "Moments":
        num_missing = self.num_missing + other.num_missing
        if not self.num_present or not other.num_present:
            some = self if self.num_present else other
            return Moments(some.num_present, num_missing, some.mean, some.squares)
        num_present = self.num_present + other.num_present
        difference = other.mean - self.mean
        mean = self.mean + difference * (other.num_present / num_present)
        between = difference * difference * (self.num_present * other.num_present / num_present)
        return Moments(num_present, num_missing, mean, self.squares + other.squares + between)

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the present values; 1 if all are equal or there are none."""
        deviation = math.sqrt(self.squares / self.num_present) if self.num_present else 0.0
        return deviation or 1.0


@dataclass(frozen=True)
class SplitMeasure:
    """Statistics of the rows of one part that belong to one split."""

    num_rows: int
    num_positives: int
    sum_of_weights: float
    sum_of_positive_weights: float
    """Sum of the weights of the rows whose label is 1."""
    num_values: dict[int, int]
    """Number of values in all these rows, by index of the multi-hot feature."""


@dataclass(frozen=True)
class PartMeasure:
    """Statistics of one part."""

    splits: dict[Split, SplitMeasure]
    dense: list[Moments]
    """Moments of each dense column over the training rows; empty moments where the transform needs none."""
    is_missing_as_before: list[bool]
    """Whether each dense column is missing in the same training rows as the one before it, in the same lists."""


def measure_parts(rows: StagedRows, workers: Workers, progress: PreparationProgress) -> list[PartMeasure]:
    """Measure all parts; return the measures in the order of the parts."""
    progress.start("measuring", 0.55, sum(part.record.num_rows for part in rows.parts))
    measures: list[PartMeasure] = []
    for part, measured in zip(rows.parts, workers.map(partial(_measure_part, rows), rows.parts), strict=True):
        measures.append(measured)
        progress.advance(part.record.num_rows, part.record.num_rows)
    return measures


def _measure_part(rows: StagedRows, part: Part) -> PartMeasure:
    staged = rows.open(part)
    is_held_out = rows.is_held_out(part, staged)
    measures: dict[Split, SplitMeasure] = {
        split: _measure_split(rows, staged, is_held_out == (split == "eval")) for split in SPLITS
    }
    columns = rows.schema.dense

    def get_values(index: int) -> NDArray[np.float64]:
        return staged.dense(index)[~is_held_out]

    dense = [
        Moments() if column.transform == "log" else Moments.from_values(get_values(index))
        for index, column in enumerate(columns)
    ]
    return PartMeasure(
        measures, dense, [is_missing_as_before(columns, index, get_values) for index in range(len(columns))]
    )


def _measure_split(rows: StagedRows, staged: StagedPart, is_in: NDArray[np.bool_]) -> SplitMeasure:
    num_rows = int(np.count_nonzero(is_in))
    is_positive = is_in & (staged.labels == 1)
    num_positives = int(np.count_nonzero(is_positive))
    weights = staged.weights
    return SplitMeasure(
        num_rows=num_rows,
        num_positives=num_positives,
        sum_of_weights=float(num_rows if weights is None else weights[is_in].sum(dtype=np.float64)),
        sum_of_positive_weights=float(num_positives if weights is None else weights[is_positive].sum(dtype=np.float64)),
        num_values={
            index: int(lengths[is_in].sum(dtype=np.int64))
            for index in range(len(rows.schema.categorical))
            if (lengths := staged.lengths(index)) is not None
        },
    )
