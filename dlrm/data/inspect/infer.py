"""Inference of a schema: which column is the label, which one the weight, and how the others are used."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from dlrm.config import CategoricalColumn
from dlrm.data.errors import DataError
from dlrm.data.inspect.choice import LEAK_AUC, Choice, leave_out
from dlrm.data.inspect.label import Label, find_label, is_called_label
from dlrm.data.inspect.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.rules import choose, find_name_fault
from dlrm.data.inspect.sample import SEVERAL_TYPES, FileSample, is_usable, pick_columns

WEIGHT_NAMES = ("sample_weight", "sample_weights", "instance_weight", "weights", "weight")
_MEAN_WEIGHTS = (0.05, 20.0)
"""Bounds of the mean of a weight: a `weight` beyond them is more likely that of a person or a parcel."""

OnColumn = Callable[[str, float], None]
"""Callback that receives the name of a column before it is judged, and the share of the columns judged so far."""


@dataclass(frozen=True)
class InferredSchema:
    """An inferred schema, with reasons."""

    label: str
    positive: str | None
    """Value of the label that stands for 1; None where labels are 0 or 1."""
    label_why: str
    missing_label_share: float
    """Share of the sampled rows without a label."""
    weight: str | None
    choices: list[Choice]
    """Choices for all other columns, in their order in the files."""
    leaks: dict[str, float]
    """AUC of each column in use that predicts the label so well that it may hold it."""
    unshared: dict[str, str]
    """Reasons for which columns are left out that only some of the files have, or with several types, by name; of two
    that may be the same column only the first."""


def infer(sample: FileSample, label: str | None = None, on_column: OnColumn = lambda _, __: None) -> InferredSchema:
    """Infer the schema of the files that `sample` was taken from.

    label: name of the label; None to find it. Raises DataError where `label` is not a column of two values, where it is
    not clear which column is the label, where all labels are the same, and where no column is left to learn from.
    """
    _check_label_is_everywhere(sample, label)
    found = find_label(sample.readable, label)
    _refuse_unusable_label(found.name, sample.types[found.name])
    if fault := find_name_fault(found.name):
        raise DataError(f"the label cannot be read: {fault}", field=found.name or None, valid="another name for it")
    _check_classes(found, sample)
    is_labelled = found.is_positive.is_not_null()
    usable = [name for name, kind in sample.types.items() if is_usable(kind)]
    rows = sample.rows.filter(is_labelled)
    labels = found.is_positive.drop_nulls().to_numpy().astype(np.bool_)
    labelled = LabelledRows(labels, max(sample.num_rows, len(labels)))
    weight = _find_weight(pick_columns(rows, usable), found.name)
    names = [name for name in rows.columns if name not in (found.name, weight)]
    choices: list[Choice] = []
    for index, name in enumerate(names):
        on_column(name, index / len(names))
        choices.append(choose(rows[name], sample.types[name], labelled, sample.delimiter))
    choices = _leave_out_clashes(_leave_out_same(choices, rows))
    if all(choice.is_left_out for choice in choices):
        reasons = "; ".join(f"{name} is {reason}" for name, reason in _list_unshared(sample).items())
        message = f"no column is left to learn from{': ' if reasons else ''}{reasons}"
        raise DataError(message, valid="at least one dense or categorical column")
    missing_share = 1.0 - len(labels) / sample.rows.height
    used = [(choice.name, choice.auc or 0.0) for choice in choices if not choice.is_left_out]
    leaks = {name: auc for name, auc in used if auc >= LEAK_AUC}
    unshared = _list_unshared(sample)
    return InferredSchema(found.name, found.positive, found.why, missing_share, weight, choices, leaks, unshared)


def _check_label_is_everywhere(sample: FileSample, label: str | None) -> None:
    for name, kind in sample.types.items():
        if name == label if label is not None else is_called_label(name):
            _refuse_unusable_label(name, kind)


def _refuse_unusable_label(name: str, kind: str) -> None:
    if not is_usable(kind):
        raise DataError(f"the label cannot be read from all files: {kind}", field=name, valid="files with a label")


def _list_unshared(sample: FileSample) -> dict[str, str]:
    """List the columns that differ between the files, with the reason; of two that may be the same only the first."""
    reasons: dict[str, str] = {}
    for name, kind in sample.types.items():
        column = sample.unshared.get(name)
        if kind.startswith(SEVERAL_TYPES) or (column is not None and column.twin not in reasons):
            reasons[name] = kind
    return reasons


def _check_classes(label: Label, sample: FileSample) -> None:
    """Raise DataError where the labels of all rows of the files are the same."""
    present = label.is_positive.drop_nulls()
    if present.n_unique() < 2 and sample.rows.height >= sample.num_rows:
        value = sample.rows[label.name].drop_nulls()[0]
        message = f"the label is {value!r} in every row: there is nothing to learn"
        raise DataError(message, field=label.name, valid="rows of both classes, or another column for --label")


def _find_weight(rows: pl.DataFrame, label: str) -> str | None:
    candidates = {name.strip().lower(): name for name in reversed(rows.columns) if name != label}
    found = (candidates[name] for name in WEIGHT_NAMES if name in candidates)
    return next((name for name in found if _is_weight(rows[name])), None)


def _is_weight(values: pl.Series) -> bool:
    if not values.dtype.is_numeric() or values.has_nulls():
        return False
    numbers = values.cast(pl.Float64)
    if not (numbers.is_finite() & (numbers >= 0)).all():
        return False
    return _MEAN_WEIGHTS[0] <= float(numbers.to_numpy().mean()) <= _MEAN_WEIGHTS[1]


def _leave_out_clashes(choices: Sequence[Choice]) -> list[Choice]:
    """Leave out ranges and parts of times whose feature has the name of another column, such as `price:buckets`."""
    ids = {choice.name for choice in choices if any("type" in settings for settings in choice.categorical)}
    kept: list[Choice] = []
    for choice in choices:
        features = {CategoricalColumn.model_validate({"name": choice.name, **s}).feature: s for s in choice.categorical}
        clash = next((name for name in features if name != choice.name and name in ids), None)
        if clash is None:
            kept.append(choice)
            continue
        why = f"{choice.why}; no feature {clash!r} of it, since a column has this name"
        uses = [settings for name, settings in features.items() if name == choice.name or name not in ids]
        kept.append(replace(choice, why=why, categorical=uses))
    return kept


def _leave_out_same(choices: Sequence[Choice], rows: pl.DataFrame) -> list[Choice]:
    """Leave out columns with the content of an earlier one that is used in the same way."""
    names_of: dict[tuple[bytes, str], str] = {}
    kept: list[Choice] = []
    for choice in choices:
        if choice.is_left_out or isinstance(rows[choice.name].dtype, pl.List):
            kept.append(choice)
            continue
        # Ids may have other names; numbers must be the same numbers.
        column = EncodedColumn.encode(rows[choice.name])
        numbers = "" if choice.dense is None else str(column.distinct.cast(pl.Float64).hash().sum())
        uses = f"{numbers} {[settings for settings in choice.categorical if 'type' not in settings]}"
        first = names_of.setdefault((column.digest, uses), choice.name)
        if first == choice.name:
            kept.append(choice)
        else:
            kept.append(replace(leave_out(choice.name, f"the same content as {first!r} in every row"), auc=choice.auc))
    return kept
