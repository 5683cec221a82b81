"""Inference of a schema: the columns of the label and of the weight, and how the others are used."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from dlrm.config import CategoricalColumn
from dlrm.data.errors import DataError
from dlrm.data.inspect.judge.choice import Choice, leave_out
from dlrm.data.inspect.judge.giveaways import doubt_outcome, find_giveaway
from dlrm.data.inspect.judge.label import Label, find_label, find_weight
from dlrm.data.inspect.judge.label_words import is_called_label
from dlrm.data.inspect.judge.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.judge.rules import choose, find_name_fault
from dlrm.data.inspect.sample.file_sample import SEVERAL_TYPES, FileSample, is_usable

OnColumn = Callable[[str, float], None]
"""Callback that receives the name of a column before it is judged, and the share of the columns judged so far."""


@dataclass(frozen=True)
class InferredSchema:
    """An inferred schema, with reasons."""

    label: str
    positive: str | None
    """Value of the label that stands for 1, or a comparison; None if labels are 0 or 1."""
    label_why: str
    label_doubt: str
    """Reason why the labels may be turned round; empty if the values say which is 1."""
    missing_label_share: float
    """Share of the sampled rows without a label."""
    weight: str | None
    weight_why: str
    """Explanation of the weight, or of how a column would be one; empty if no column is called so."""
    choices: list[Choice]
    """Choices for all other columns, in their order in the files."""
    leaks: dict[str, str]
    """Columns in use that may give the label away, each with a description of how, worded to follow the name."""
    unshared: dict[str, str]
    """Reasons for leaving out columns that differ between the files (only some have them, or with several types), by
    name; of two columns that may be the same, only the first."""


def infer(
    sample: FileSample,
    label: str | None = None,
    positive: str | None = None,
    weight: str | None = None,
    on_column: OnColumn = lambda _, __: None,
) -> InferredSchema:
    """Infer the schema of the files that `sample` was taken from.

    label: name of the label; None to find it. positive: value of the label that stands for 1, or a comparison; None to
    find it. weight: as for `find_weight`. Raises DataError if a named column or value is not valid, if it is not clear
    which column is the label, if all labels are the same, and if no column is left to learn from.
    """
    for name, kind in sample.types.items():
        if name == label if label is not None else is_called_label(name):
            _refuse_unusable_label(name, kind)
    found = find_label(sample.readable, label, positive)
    _refuse_unusable_label(found.name, sample.types[found.name])
    if fault := find_name_fault(found.name):
        raise DataError(f"the label cannot be read: {fault}", field=found.name or None, valid="another name for it")
    _check_classes(found, sample)
    weights = find_weight(sample, found.name, weight)
    rows = sample.rows.filter(found.is_positive.is_not_null())
    labels = found.is_positive.drop_nulls().to_numpy().astype(np.bool_)
    labelled = LabelledRows(labels, max(sample.num_rows, len(labels)))
    names = [name for name in rows.columns if name not in (found.name, weights.name)]
    choices: list[Choice] = []
    for index, name in enumerate(names):
        on_column(name, index / len(names))
        if name in weights.left_out:
            reason = weights.left_out[name]
            choices.append(replace(leave_out(name, reason), warning=f"left out: {reason}"))
        else:
            choices.append(choose(rows[name], sample.types[name], labelled, sample.delimiter))
    choices, leaks = _compare_with_label_and_others(choices, rows, labelled)
    choices = _leave_out_clashes(choices)
    unshared = _list_unshared(sample)
    _check_use(choices, unshared)
    return InferredSchema(
        label=found.name,
        positive=found.positive,
        label_why=found.why,
        label_doubt=found.doubt,
        missing_label_share=1.0 - len(labels) / sample.rows.height,
        weight=weights.name,
        weight_why=weights.why,
        choices=choices,
        leaks=leaks,
        unshared=unshared,
    )


def _check_use(choices: Sequence[Choice], unshared: Mapping[str, str]) -> None:
    """Raise DataError if no column is used. unshared: as in InferredSchema."""
    if all(choice.is_left_out for choice in choices):
        reasons = [f"{name} is {reason}" for name, reason in unshared.items()]
        reasons += [f"{choice.name}: {choice.warning}" for choice in choices if choice.warning]
        message = f"no column is left to learn from{': ' if reasons else ''}{'; '.join(reasons)}"
        raise DataError(message, valid="at least one dense or categorical column")


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
    """Raise DataError if the labels of all rows of the files are the same."""
    present = label.is_positive.drop_nulls()
    if present.n_unique() < 2 and sample.rows.height >= sample.num_rows:
        value = sample.rows[label.name].drop_nulls()[0]
        message = f"the label is {value!r} in every row: there is nothing to learn"
        raise DataError(message, field=label.name, valid="rows of both classes, or another column for --label")


def _leave_out_clashes(choices: Sequence[Choice]) -> list[Choice]:
    """Leave out ranges, parts of times and elements of lists whose feature has the name of another column, such as
    `price:buckets`."""
    ids = {choice.name for choice in choices if any("type" in settings for settings in choice.categorical)}
    numbers = {choice.name for choice in choices if choice.dense is not None}
    kept: list[Choice] = []
    for choice in choices:
        elements = (f"{choice.name}[{element}]" for element in range(int((choice.dense or {}).get("length", 0))))
        if clash := next((name for name in elements if name in numbers), None):
            kept.append(leave_out(choice.name, f"{choice.why}; its element {clash!r} has the name of another column"))
            continue
        features = {CategoricalColumn.model_validate({"name": choice.name, **s}).feature: s for s in choice.categorical}
        clash = next((name for name in features if name != choice.name and name in ids), None)
        if clash is None:
            kept.append(choice)
            continue
        why = f"{choice.why}; no feature {clash!r} of it, since a column has this name"
        uses = [settings for name, settings in features.items() if name == choice.name or name not in ids]
        kept.append(replace(choice, why=why, categorical=uses))
    return kept


def _compare_with_label_and_others(
    choices: Sequence[Choice], rows: pl.DataFrame, labelled: LabelledRows
) -> tuple[list[Choice], dict[str, str]]:
    """Leave out columns with the same content and use as an earlier one, and outcomes that give the label away. Return
    all choices, and how others give it away, by name."""
    names_of: dict[tuple[bytes, bytes, str], str] = {}
    kept: list[Choice] = []
    leaks: dict[str, str] = {}
    for choice in choices:
        if choice.is_left_out:
            kept.append(choice)
            continue
        values = rows[choice.name]
        column = None if isinstance(values.dtype, pl.List) else EncodedColumn.encode(values)
        giveaway = find_giveaway(choice, values, column, labelled)
        checked = doubt_outcome(choice, giveaway, column)
        if column is not None and not checked.is_left_out:
            first = names_of.setdefault(_identify_content(choice, column), choice.name)
            if first != choice.name:
                left_out = leave_out(choice.name, f"the same content as {first!r} in every row")
                checked = replace(left_out, auc=choice.auc)
        if giveaway and not checked.is_left_out:
            leaks[choice.name] = giveaway
        kept.append(checked)
    return kept, leaks


def _identify_content(choice: Choice, column: EncodedColumn) -> tuple[bytes, bytes, str]:
    """Return what is equal for columns with the same content in the same use: ids may have other names, numbers and
    times must be the same."""
    uses = str([settings for settings in choice.categorical if "type" not in settings])
    if choice.dense is None and all("type" in settings for settings in choice.categorical):
        return column.digest, b"", uses
    distinct = column.distinct
    values = distinct if distinct.dtype == pl.String else distinct.cast(pl.Float64)
    return column.digest, hashlib.blake2b(values.hash().to_numpy().tobytes()).digest(), uses
