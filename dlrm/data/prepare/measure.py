"""Statistics of every part, measured before encoding: sizes of both splits, labels, weights, dense columns."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dlrm.data.encode.dense import is_missing_as_before
from dlrm.data.packed.layout import Split
from dlrm.data.prepare.moments import Moments
from dlrm.data.prepare.part_files import StagedPart
from dlrm.data.prepare.progress import PhaseProgress
from dlrm.data.prepare.staged_rows import Part, StagedRows
from dlrm.data.prepare.workers import Workers

SPLITS: tuple[Split, Split] = ("train", "eval")


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


def measure_parts(rows: StagedRows, workers: Workers, progress: PhaseProgress) -> list[PartMeasure]:
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
