"""Statistics of every part, measured before encoding: sizes of both splits, labels, weights, dense columns.

They give the contents of `meta.json`, and show whether the splits can be trained and evaluated on.
"""

import dataclasses
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dlrm.config import DataConfig, format_count
from dlrm.data.encode.encoders import Encoders, is_missing_as_before
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import VALID_MEAN_WEIGHT, FeatureMeta, PackedMeta, Split, SplitMeta
from dlrm.data.prepare.fingerprint import get_library_versions
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.prepare.stage import Part, StagedPart, StagedRows
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.tables.table import list_versions
from dlrm.data.raw.values.positive_labels import make_positive_error
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
    """Number of values in all these rows, by index of the feature."""


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
            index: num_rows if (lengths := staged.lengths(index)) is None else int(lengths[is_in].sum(dtype=np.int64))
            for index in range(len(rows.schema.categorical))
        },
    )


_MAX_INT32_ROWS = 2**31


Splits = dict[Split, SplitMeta]


def describe_splits(measures: Sequence[PartMeasure]) -> Splits:
    """Describe the rows of both splits, over all parts."""
    return {split: _sum_up([measure.splits[split] for measure in measures]) for split in SPLITS}


def _sum_up(measures: Sequence[SplitMeasure]) -> SplitMeta:
    num_rows = sum(measure.num_rows for measure in measures)
    sum_of_weights = sum(measure.sum_of_weights for measure in measures)
    sum_of_positive_weights = sum(measure.sum_of_positive_weights for measure in measures)
    return SplitMeta(
        num_rows=num_rows,
        num_positives=sum(measure.num_positives for measure in measures),
        mean_weight=sum_of_weights / max(num_rows, 1),
        label_rate=sum_of_positive_weights / sum_of_weights if sum_of_weights else 0.0,
    )


def describe(
    config: DataConfig, rows: StagedRows, splits: Splits, encoders: Encoders, files: Sequence[DataFile]
) -> PackedMeta:
    """Make the description of a packed directory; the sizes and checksums of its files are still missing in it."""
    features = encoders.schema_of_rows.features
    is_small = all(feature.num_ids <= _MAX_INT32_ROWS for feature in features)
    return PackedMeta(
        dense=encoders.dense_names,
        features=[FeatureMeta(**dataclasses.asdict(feature)) for feature in features],
        id_type="int32" if is_small else "int64",
        has_weights=config.raw_schema.weight is not None,
        num_further_labels=len(config.raw_schema.further_labels),
        splits=splits,
        num_bad_rows=rows.num_bad_rows,
        odd_values=rows.odd_values,
        files={},
        sources=[file.name for file in files],
        tables=list_versions(files),
        window_rows=config.window_rows if config.vocabulary.has_dynamic_ids else None,
        raw_format=config.format,
        versions={"python": platform.python_version()} | get_library_versions(),
    )


def check_splits(
    config: DataConfig, rows: StagedRows, splits: Splits, train: Sequence[DataFile], evaluation: Sequence[DataFile]
) -> None:
    """Raise DataError if a split has no rows or only rows of weight 0, if the mean weight of the training rows is
    outside the range that float32 can train with, or if `schema.positive` makes all labels alike."""
    _check_files(rows, train, "data.train")
    _check_files(rows, evaluation, "data.eval")
    hints: dict[Split, tuple[str, str, str]] = {
        "train": ("training", "data.train", "smaller"),
        "eval": ("evaluation", "data.eval", "larger"),
    }
    for split, (kind, field, hint) in hints.items():
        if splits[split].num_rows or (split == "eval" and config.follow is not None):
            continue
        if rows.split is None:
            raise DataError(f"no row is left for {kind}", field=field, valid="files with rows")
        raise DataError(
            f"no row is left for {kind} with {format_count(rows.num_good_rows, 'row')} at a fraction of "
            f"{config.eval_fraction}",
            field="data.eval_fraction",
            valid=f"a {hint} fraction, more rows, or files in data.eval",
        )
    if config.raw_schema.positive is not None:
        _check_positive(config.raw_schema.positive, rows, [*splits.values()], [*train, *evaluation])
        # Files of their own may spell the label otherwise.
        own: dict[Split, Sequence[DataFile]] = {"train": train, "eval": evaluation} if evaluation else {}
        for split, files in own.items():
            _check_positive(config.raw_schema.positive, rows, [splits[split]], files, hints[split][0])
    for split, (kind, _, _) in hints.items():
        if splits[split].num_rows and splits[split].mean_weight == 0:
            weight = config.raw_schema.weight
            raise DataError(f"every {kind} row has weight 0", field=weight, valid="some rows with a weight above 0")
    if not splits["train"].can_train:
        message = f"the training rows have a mean weight of {splits['train'].mean_weight:.3g}"
        raise DataError(message, field=config.raw_schema.weight, valid=VALID_MEAN_WEIGHT)


def _check_files(rows: StagedRows, files: Sequence[DataFile], field: str) -> None:
    """Raise DataError if there are files but none of them holds a row, not even a bad one."""
    with_rows = {part.record.file for part in rows.parts if part.record.num_rows}
    if files and not any(file.name in with_rows for file in files):
        more = f"; none of the {len(files):,} files does" if len(files) > 1 else ""
        raise DataError(f"holds no rows{more}", files[0].name, field=field, valid="files with rows")


def _check_positive(
    positive: str, rows: StagedRows, splits: Sequence[SplitMeta], files: Sequence[DataFile], kind: str = ""
) -> None:
    """Raise DataError if no row, or every row, of some splits has the positive label.

    files: files of the splits. kind: kind of their rows, such as "evaluation"; empty for all.
    """
    num_positives = sum(split.num_positives for split in splits)
    if 0 < num_positives < sum(split.num_rows for split in splits):
        return
    names = {file.name for file in files}
    values = (value for part in rows.parts if part.record.file in names for value in part.record.label_values)
    raise make_positive_error(positive, rows.schema.label, num_positives, values, kind)
