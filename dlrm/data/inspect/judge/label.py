"""Search for the label, a column with two values that is called a label or is the only one, and for the weight.

The weight of the rows is a column whose name can mean nothing else, or the one asked for.
"""

import difflib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from dlrm.config import format_some
from dlrm.data.errors import DataError
from dlrm.data.inspect.judge.label_words import (
    GRADE_NAMES,
    LABEL_NAMES,
    OUTCOME_NAMES,
    choose_positive,
    is_called_label,
    normalise,
    split_words,
)
from dlrm.data.inspect.sample.file_sample import FileSample, is_usable
from dlrm.data.raw.values.positive_labels import PositiveNumbers, match_positive

_MAX_SHOWN = 10
_MIN_ROWS_FOR_PLACE = 20
"""Least number of rows from which a column of any two values is taken for the label by its place."""
_COORDINATE = "y"
"""Name of a label that is as often the name of a coordinate, if the column has many values."""


@dataclass(frozen=True)
class Label:
    """The label column, and how it was found."""

    name: str
    positive: str | None
    """Value that stands for 1, or a comparison; None if the values are 0 and 1."""
    why: str
    is_positive: pl.Series
    """[n], whether the label is 1; null if it is missing."""
    doubt: str = ""
    """Reason why the labels may be turned round, with what would turn them; empty if the values say it."""


def find_label(rows: pl.DataFrame, name: str | None = None, positive: str | None = None) -> Label:
    """Find the label among the columns of `rows`.

    name: the label, None to find it. positive: the value or comparison that stands for 1, None to find it. Raises
    DataError if `name` is no column with two values or, given `positive`, no column divided by it, and if it is not
    clear which column is the label.
    """
    if positive is not None and not positive.strip():
        raise DataError("is blank", field="--positive", valid="a value of the label, or a comparison such as '>= 4'")
    if name is not None:
        _check_label(rows, name, positive)
        return _read_label(rows[name], "as told", positive)

    def is_candidate(values: pl.Series) -> bool:
        return _get_values(values) is not None if positive is None else _divides(positive, values)

    candidates = [column for column in rows.columns if is_candidate(rows[column])]
    if named := _find_by_name(rows, candidates, positive):
        return _read_label(rows[named], "by its name", positive)
    found = None if _is_comparison(positive) else _find_by_place(rows, candidates)
    # What is called a label may rather be the label than a column found by its place; and what is called a rating or
    # the like may be, if that column has two values other than 0 and 1, such as a gender.
    graded = _list_graded(rows)
    is_rivalled = found and (any(map(is_called_label, graded)) or (graded and not _is_binary(rows[found[0]])))
    if found is None or is_rivalled:
        raise _make_unclear_error(rows, candidates, positive)
    return _read_label(rows[found[0]], found[1], positive)


def _find_by_name(rows: pl.DataFrame, candidates: list[str], positive: str | None) -> str | None:
    by_name = {normalise(name): name for name in reversed(candidates)}
    clear = {normalise(name): name for name in reversed(candidates) if positive is None and _is_clear(rows[name])}
    for names in (clear, by_name):
        if wanted := next((wanted for wanted in LABEL_NAMES if wanted in names), None):
            return names[wanted]
    if positive is not None and (graded := [by_name[wanted] for wanted in GRADE_NAMES if wanted in by_name]):
        return graded[0]
    outcomes = [by_name[wanted] for wanted in OUTCOME_NAMES if wanted in by_name]
    if len(outcomes) > 1:
        outcomes = [name for name in outcomes if name in (rows.columns[0], rows.columns[-1])]
    if len(outcomes) == 1:
        return outcomes[0]
    # A column that is called the label, and has one value, is the label all the same.
    return next((name for name in rows.columns if is_called_label(name) and _is_binary(rows[name])), None)


def _find_by_place(rows: pl.DataFrame, candidates: list[str]) -> tuple[str, str] | None:
    """Find the column of 0 and 1, or of any two values, that alone among them is the first or the last."""
    if len(rows.columns) == 1:
        return None
    binary = [name for name in candidates if _is_binary(rows[name])]
    # In few rows any column may have two values by chance.
    others = candidates if rows.height >= _MIN_ROWS_FOR_PLACE else []
    for found, what in ((binary, "0 and 1"), (others, "two values")):
        at_ends = [name for name in found if name in (rows.columns[0], rows.columns[-1])]
        if len(at_ends) == 1:
            place = "first" if at_ends[0] == rows.columns[0] else "last"
            within = [name for name in found if name != at_ends[0]]
            why = f"while others of {what} are neither first nor last: {_format_names(within)}"
            return at_ends[0], f"the {place} column, {why if within else f'and the only one of {what}'}"
        if at_ends:
            return None
    return None


def _list_graded(rows: pl.DataFrame) -> list[str]:
    """List the columns of more than two values named like labels or ratings, which a positive value would divide."""
    names = {*LABEL_NAMES, *GRADE_NAMES} - {_COORDINATE}
    return [name for name in rows.columns if normalise(name) in names and _has_many_values(rows[name])]


def _check_label(rows: pl.DataFrame, name: str, positive: str | None) -> None:
    if name not in rows.columns:
        close = difflib.get_close_matches(name, rows.columns, n=3, cutoff=0.3) or rows.columns[:_MAX_SHOWN]
        valid = format_some(close, len(rows.columns))
        raise DataError(f"there is no column {name!r}", field="--label", valid=valid)
    values = rows[name]
    if not _can_be_label(values) or values.null_count() == len(values):
        raise DataError(f"column {name!r} is {values.dtype}", field="--label", valid="a column with two values")
    if positive is not None:
        if not _divides(positive, values):
            message = f"{positive!r} does not divide the rows: column {name!r} contains {_format_values(values)}"
            raise DataError(message, field="--positive", valid=_suggest_positive(values))
    elif _get_values(values) is None and not _is_binary(values):
        suggested = f"or --positive {_suggest_positive(values)}" if _has_many_values(values) else ""
        valid = f"a column with two values{', ' if suggested else ''}{suggested}"
        raise DataError(f"column {name!r} contains {_format_values(values)}", field="--label", valid=valid)


def _make_unclear_error(rows: pl.DataFrame, candidates: list[str], positive: str | None) -> DataError:
    message = "it is not clear which column is the label"
    if positive is not None:
        options = " or ".join(f"--label {shlex.quote(name)}" for name in candidates[:_MAX_SHOWN])
        message += f" that {positive!r} divides"
        return DataError(message, field="--positive", valid=options or "a value that some rows have and others lack")
    graded = [f"--label {shlex.quote(name)} --positive {_suggest_positive(rows[name])}" for name in _list_graded(rows)]
    if not candidates:
        valid = " or ".join(graded) or "files with a column of two values, such as 0 and 1"
        if len(rows.columns) == 1:
            # Probably all of them, with a delimiter that is not known.
            message += f": the only column is called {rows.columns[0]!r}"
            valid = "files with several columns, separated by a comma, tab, ;, |, ::, Ctrl-A, ^, ~ or space"
        return DataError(f"{message}: no column has exactly two values", valid=valid)
    binary = [name for name in candidates if _is_binary(rows[name])]
    is_chance = rows.height < _MIN_ROWS_FOR_PLACE
    shown, what = (binary, "of 0 and 1") if binary and is_chance else (candidates, "with two values")
    options = " or ".join(graded + [f"--label {shlex.quote(name)}" for name in shown])
    return DataError(f"{message}; the columns {what} are {_format_names(shown)}", valid=options)


def _format_names(names: list[str]) -> str:
    return ", ".join(names[:_MAX_SHOWN]) + (", …" if len(names) > _MAX_SHOWN else "")


def _format_values(values: pl.Series) -> str:
    distinct = values.drop_nulls().unique().sort()
    return ", ".join(map(repr, distinct.head(5).to_list())) + (", …" if len(distinct) > 5 else "")


def _read_label(values: pl.Series, how: str, positive: str | None) -> Label:
    if positive is not None:
        labels, is_missing = match_positive(values.alias("").to_arrow(), positive)
        is_positive = pl.Series(values.name, labels == 1).set(pl.Series(is_missing), None)
        is_one = f"{positive if _is_comparison(positive) else repr(positive)} is 1"
        if not _is_comparison(positive):
            is_one += f", other values such as {_format_values(values.filter(~is_positive))} are 0"
        why = f"{how}; {is_one}, {_describe_share(is_positive)}"
        return Label(values.name, positive, why, is_positive)
    if _is_binary(values):
        is_positive = values.cast(pl.Float64) == 1.0
        return Label(values.name, None, f"{how}; 0 or 1, {_describe_share(is_positive)}", is_positive)
    found = _get_values(values)
    assert found is not None, "other columns are no labels"
    num_first = int((values == found[0]).sum())
    classes = choose_positive(found, (num_first, values.count() - num_first))
    is_positive = values == classes.positive
    one, zero = _format(classes.positive), _format(classes.negative)
    doubt = ""
    if not classes.is_certain:
        option = shlex.join(["--label", values.name, "--positive", zero])
        turn = f"positive = {json.dumps(zero, ensure_ascii=False)} in the document, or {option}, turns the labels round"
        doubt = f"{one!r}, {classes.why}, is taken for 1 and {zero!r} for 0, which the values do not say: {turn}"
    why = f"{how}; {one!r} is 1 and {zero!r} is 0 ({classes.why}), {_describe_share(is_positive)}"
    return Label(values.name, one, why, is_positive, doubt)


def _describe_share(is_positive: pl.Series) -> str:
    missing = f", {is_positive.null_count():,} missing" if is_positive.has_nulls() else ""
    return f"{is_positive.mean() or 0.0:.1%} are 1{missing}"


def _suggest_positive(values: pl.Series) -> str:
    """Suggest what could stand for 1, quoted for a shell: numbers above 0 of counts, numbers from the value on that
    divides the rows most evenly, or the text that is likeliest to mean 1."""
    numbers = values.cast(pl.Float64, strict=False).drop_nulls()
    if len(numbers) < values.count():
        by_count = values.drop_nulls().value_counts(sort=True)
        texts, counts = by_count[values.name].to_list()[:_MAX_SHOWN], by_count["count"].to_list()[:_MAX_SHOWN]
        best = (texts[0], counts[0])
        for text, count in zip(texts[1:], counts[1:], strict=True):
            classes = choose_positive((best[0], text), (best[1], count))
            best = (text, count) if classes.positive == text else best
        return shlex.quote(str(best[0]))
    distinct, counts = np.unique(numbers.to_numpy(), return_counts=True)
    if distinct[0] == 0 and np.all(distinct == np.floor(distinct)):
        return shlex.quote("> 0")
    above = np.cumsum(counts[::-1])[::-1][1:]
    bound = float(distinct[1:][np.argmin(np.abs(above - len(numbers) / 2))])
    rounded = float(f"{bound:.2g}")
    return shlex.quote(f">= {_format(rounded if distinct[0] < rounded <= distinct[-1] else bound)}")


def _is_comparison(positive: str | None) -> bool:
    numbers = None if positive is None else PositiveNumbers.parse(positive)
    return numbers is not None and numbers.sign != ""


def _divides(positive: str, values: pl.Series) -> bool:
    """Whether some present values are positive, and others not."""
    if not _can_be_label(values):
        return False
    labels, is_missing = match_positive(values.alias("").to_arrow(), positive)
    present = labels[~is_missing]
    return len(present) > 0 and 0 < present.sum() < len(present)


def _can_be_label(values: pl.Series) -> bool:
    return values.dtype.is_numeric() or values.dtype in (pl.Boolean, pl.String)


def _has_many_values(values: pl.Series) -> bool:
    return _can_be_label(values) and values.n_unique() - values.has_nulls() > 2


def _get_values(values: pl.Series) -> tuple[object, object] | None:
    """Return the two present values of a column, ascending; None if it has fewer or more, or is no label."""
    if not _can_be_label(values) or values.n_unique() - values.has_nulls() != 2:
        return None
    low, high = values.drop_nulls().unique().sort()
    return low, high


def _is_clear(values: pl.Series) -> bool:
    """Whether the two values of a column say which of them is 1."""
    found = _get_values(values)
    return _is_binary(values) or (found is not None and choose_positive(found, (1, 1)).is_certain)


def _is_binary(values: pl.Series) -> bool:
    """Whether all present values are 0 or 1."""
    if not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
        return False
    numbers = values.drop_nulls().cast(pl.Float64)
    return len(numbers) > 0 and bool(numbers.is_in([0.0, 1.0]).all())


def _format(value: object) -> str:
    """Format a value as a schema names it."""
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)


NO_WEIGHT = "none"
"""Wish for no weight at all."""
_SURE_NAME = re.compile(
    r"(sample|instance|case|row|record|example|obs|observation|survey|sampling|training|train|importance|loss)_?weights?"
)
_BARE_NAME = re.compile(r"weights?")
_MAX_WEIGHT = float(np.finfo(np.float32).max)
_VALID = "a column of finite numbers of at least 0, one in every row"


@dataclass(frozen=True)
class Weight:
    """The weight column, and how it was found."""

    name: str | None
    """Name of the column; None if all rows count the same."""
    why: str
    """Explanation of the choice, or a sentence on how a column would be the weight; empty if none is called so."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Reasons for other columns that are called weights of rows and therefore are no features, by name."""


def find_weight(sample: FileSample, label: str, wanted: str | None = None) -> Weight:
    """Find the weight of the rows.

    wanted: name of the weight, NO_WEIGHT for none, or None to find one. Raises DataError if `wanted` is no column of
    weights.
    """
    if wanted not in (None, NO_WEIGHT):
        _check_wanted(sample, label, wanted)
    others = [name for name in sample.readable.columns if name not in (label, wanted)]
    called = {name: _find_fault(sample, name) for name in others if _SURE_NAME.fullmatch(split_words(name))}
    if wanted == NO_WEIGHT:
        return Weight(None, "", dict.fromkeys(called, "called a weight of the rows, and --weight none was told"))
    if wanted is not None:
        return _make(sample, wanted, "as told", called)
    if fitting := next((name for name, fault in called.items() if not fault), None):
        return _make(sample, fitting, "by its name", called)
    left_out = {name: f"called a weight of the rows, but it {fault}" for name, fault in called.items()}
    bare = (name for name in others if _BARE_NAME.fullmatch(split_words(name)) and not _find_fault(sample, name))
    hint = next((f"{name} is a feature; --weight {name} makes it the weight of the rows" for name in bare), "")
    return Weight(None, hint, left_out)


def _make(sample: FileSample, name: str, how: str, called: Mapping[str, str]) -> Weight:
    mean = sample.rows[name].cast(pl.Float64).mean()
    why = f"{how}, mean {mean:.3g}{'' if how == 'as told' else '; --weight none leaves it out'}"
    reason = f"called a weight of the rows, which {name} is"
    return Weight(name, why, {other: reason for other in called if other != name})


def _check_wanted(sample: FileSample, label: str, wanted: str) -> None:
    names = sample.rows.columns
    if wanted not in names:
        close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.3) or names[:3]
        valid = f"{format_some(close, len(names))}, or {NO_WEIGHT}"
        raise DataError(f"there is no column {wanted!r}", field="--weight", valid=valid)
    fault = "is the label" if wanted == label else _find_fault(sample, wanted)
    if fault:
        raise DataError(f"column {wanted!r} {fault}", field="--weight", valid=_VALID)


def _find_fault(sample: FileSample, name: str) -> str:
    """Return why a column cannot be the weight, after its name; empty if it can."""
    values, kind = sample.rows[name], sample.types[name]
    if not is_usable(kind) or not values.dtype.is_numeric():
        return f"is {kind}"
    if values.has_nulls():
        return f"lacks a value in {values.null_count():,} of {len(values):,} rows"
    numbers = values.cast(pl.Float64)
    if not numbers.is_finite().all():
        return "holds infinity"
    if (numbers < 0).any():
        return f"holds numbers below 0, such as {numbers.min():g}"
    if (numbers > _MAX_WEIGHT).any():
        return f"holds numbers beyond float32, such as {numbers.max():g}"
    return "" if (numbers > 0).any() else "is 0 in every row"
