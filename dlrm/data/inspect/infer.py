"""Inference of a schema: which column is the label, which one the weight, and how the others are used."""

import difflib
from dataclasses import dataclass

import polars as pl

from dlrm.data.errors import DataError
from dlrm.data.inspect.rules import Choice, choose
from dlrm.data.inspect.sample import FileSample

LABEL_NAMES = (
    "label",
    "click",
    "clicked",
    "is_click",
    "is_clicked",
    "target",
    "y",
    "converted",
    "conversion",
    "labels",
)
"""Names that identify the label, the likeliest first."""
WEIGHT_NAMES = ("weight", "sample_weight", "weights")
_MAX_SHOWN = 10


@dataclass(frozen=True)
class InferredSchema:
    """An inferred schema, with reasons."""

    label: str
    label_why: str
    weight: str | None
    choices: list[Choice]
    """Choices for all other columns, in their order in the files."""


def infer(sample: FileSample, label: str | None = None) -> InferredSchema:
    """Infer the schema of the files that `sample` was taken from.

    label: name of the label; None to find it by LABEL_NAMES. Raises DataError where `label` is not a column of 0 and 1,
    where it is not clear which column is the label, and where no column is left to learn from.
    """
    rows, is_text = sample.rows, sample.delimiter is not None
    label = _find_label(rows, label)
    positive_share = _convert_to_numbers(rows[label]).mean()
    why = f"0 or 1, {positive_share:.1%} are 1" + (
        f", {rows[label].null_count():,} missing" if rows[label].has_nulls() else ""
    )
    weight = next((name for name in rows.columns if name.lower() in WEIGHT_NAMES and _is_weight(rows[name])), None)
    choices = [
        choose(rows[name], sample.types[name], is_text=is_text) for name in rows.columns if name not in (label, weight)
    ]
    if all(choice.role == "left_out" for choice in choices):
        raise DataError("no column is left to learn from", valid="at least one dense or categorical column")
    return InferredSchema(label, why, weight, choices)


def _find_label(rows: pl.DataFrame, label: str | None) -> str:
    if label is not None:
        if label not in rows.columns:
            close = difflib.get_close_matches(label, rows.columns, n=3, cutoff=0.3) or rows.columns[:_MAX_SHOWN]
            raise DataError(f"there is no column {label!r}", field="--label", valid=", ".join(close))
        if not _is_label(rows[label]):
            shown = ", ".join(map(repr, rows[label].unique().sort().head(5).to_list()))
            raise DataError(f"column {label!r} contains {shown}", field="--label", valid="a column of 0 and 1")
        return label
    by_name = {name.lower(): name for name in reversed(rows.columns)}
    for candidate in LABEL_NAMES:
        if candidate in by_name and _is_label(rows[by_name[candidate]]):
            return by_name[candidate]
    candidates = [name for name in rows.columns if _is_label(rows[name])]
    message = "it is not clear which column is the label"
    if not candidates:
        raise DataError(f"{message}: no column contains only 0 and 1", valid="files with a column of 0 and 1")
    shown = ", ".join(candidates[:_MAX_SHOWN]) + (", …" if len(candidates) > _MAX_SHOWN else "")
    raise DataError(f"{message}; the columns of 0 and 1 are {shown}", valid=f"--label {candidates[0]}")


def _is_label(values: pl.Series) -> bool:
    if not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
        return False
    numbers = _convert_to_numbers(values)
    return len(numbers) > 0 and bool(numbers.is_in([0.0, 1.0]).all())


def _is_weight(values: pl.Series) -> bool:
    if not values.dtype.is_numeric() or values.has_nulls():
        return False
    numbers = _convert_to_numbers(values)
    return bool((numbers.is_finite() & (numbers >= 0)).all())


def _convert_to_numbers(values: pl.Series) -> pl.Series:
    return values.drop_nulls().cast(pl.Float64)
