"""Search for the label: a column with two values that is called a label, or that is the only one."""

import difflib
import re
import shlex
from dataclasses import dataclass

import polars as pl

from dlrm.config import format_some
from dlrm.data.errors import DataError

LABEL_NAMES = (
    "label",
    "click",
    "clicked",
    "target",
    "y",
    "converted",
    "conversion",
    "labels",
)
"""Names of labels, the likeliest first; as all names here also after `is_` or before `_flag` and the like."""
OUTCOME_NAMES = (
    *("class", "income", "outcome", "response", "default", "result", "churn", "churned", "exited", "attrition"),
    *("survived", "fraud", "purchased", "purchase", "subscribed", "deposit", "installed", "approved", "diagnosis"),
    *("clicks", "buy", "ordered", "isfraud", "is_attributed", "loan_status", "default_payment_next_month"),
)
"""Names of outcomes, of which a file may have several: one decides where it is the only one, or the first or last
column."""
_AFFIXES = re.compile(r"^(is|has|was|target|label)_|_(flag|label|target|bin|binary|yn)$")
_POSITIVE = ("yes", "y", "true", "t", "click", "clicked", "pos", "positive", "buy", "bought", "converted", "churned")
_NEGATIVE = ("no", "n", "false", "f", "0", "-1", "none", "neg", "negative", "never")
_NEGATION = re.compile(r"^(no|not|non)([ _-]|$)|^[<≤]")
_MAX_SHOWN = 10
_MIN_ROWS_FOR_PLACE = 20
"""Least number of rows from which a column of any two values is taken for the label by its place."""


@dataclass(frozen=True)
class Label:
    """The label column, and how it was found."""

    name: str
    positive: str | None
    """Value that stands for 1; None where the values are 0 and 1."""
    why: str
    is_positive: pl.Series
    """[n], whether the label is 1; null where it is missing."""


def find_label(rows: pl.DataFrame, name: str | None = None) -> Label:
    """Find the label among the columns of `rows`. name: the label, None to find it.

    Raises DataError where `name` is no column with two values, and where it is not clear which column is the label.
    """
    if name is not None:
        _check_label(rows, name)
        return _read_label(rows[name], "as told")
    two_valued = [column for column in rows.columns if _get_values(rows[column]) is not None]
    found = _find_by_name(rows, two_valued) or _find_by_place(rows, two_valued)
    if found is None:
        raise _make_unclear_error(rows, two_valued)
    return _read_label(rows[found[0]], found[1])


def is_called_label(name: str) -> bool:
    """Whether a column has one of LABEL_NAMES."""
    return _normalise(name) in LABEL_NAMES


def _find_by_name(rows: pl.DataFrame, two_valued: list[str]) -> tuple[str, str] | None:
    binary = {_normalise(name): name for name in reversed(two_valued) if _is_binary(rows[name])}
    by_name = {_normalise(name): name for name in reversed(two_valued)}
    for names in (binary, by_name):
        if wanted := next((wanted for wanted in LABEL_NAMES if wanted in names), None):
            return names[wanted], "by its name"
    outcomes = [by_name[wanted] for wanted in OUTCOME_NAMES if wanted in by_name]
    if len(outcomes) > 1:
        outcomes = [name for name in outcomes if name in (rows.columns[0], rows.columns[-1])]
    if len(outcomes) == 1:
        return outcomes[0], "by its name"
    # A column that is called the label, and has one value, is the label all the same.
    constant = next((name for name in rows.columns if is_called_label(name) and _is_binary(rows[name])), None)
    return None if constant is None else (constant, "by its name")


def _find_by_place(rows: pl.DataFrame, two_valued: list[str]) -> tuple[str, str] | None:
    """Find the column of 0 and 1, or of any two values, that alone among them is the first or the last."""
    if len(rows.columns) == 1:
        return None
    binary = [name for name in two_valued if _is_binary(rows[name])]
    # In few rows any column may have two values by chance.
    others = two_valued if rows.height >= _MIN_ROWS_FOR_PLACE else []
    for candidates, what in ((binary, "0 and 1"), (others, "two values")):
        at_ends = [name for name in candidates if name in (rows.columns[0], rows.columns[-1])]
        if len(at_ends) == 1:
            place = "first" if at_ends[0] == rows.columns[0] else "last"
            within = [name for name in candidates if name != at_ends[0]]
            why = f"while others of {what} are neither first nor last: {_format_names(within)}"
            return at_ends[0], f"the {place} column, {why if within else f'and the only one of {what}'}"
        if at_ends:
            return None
    return None


def _check_label(rows: pl.DataFrame, name: str) -> None:
    if name not in rows.columns:
        close = difflib.get_close_matches(name, rows.columns, n=3, cutoff=0.3) or rows.columns[:_MAX_SHOWN]
        valid = format_some(close, len(rows.columns))
        raise DataError(f"there is no column {name!r}", field="--label", valid=valid)
    values = rows[name]
    if _get_values(values) is None and not _is_binary(values):
        if isinstance(values.dtype, pl.List) or not values.null_count() < len(values):
            raise DataError(f"column {name!r} is {values.dtype}", field="--label", valid="a column with two values")
        distinct = values.drop_nulls().unique().sort()
        shown = ", ".join(map(repr, distinct.head(5).to_list())) + (", …" if len(distinct) > 5 else "")
        raise DataError(f"column {name!r} contains {shown}", field="--label", valid="a column with two values")


def _make_unclear_error(rows: pl.DataFrame, two_valued: list[str]) -> DataError:
    message = "it is not clear which column is the label"
    if not two_valued:
        valid = "files with a column of two values, such as 0 and 1"
        return DataError(f"{message}: no column has exactly two values", valid=valid)
    binary = [name for name in two_valued if _is_binary(rows[name])]
    is_chance = rows.height < _MIN_ROWS_FOR_PLACE
    candidates, what = (binary, "of 0 and 1") if binary and is_chance else (two_valued, "with two values")
    options = " or ".join(f"--label {shlex.quote(name)}" for name in candidates)
    return DataError(f"{message}; the columns {what} are {_format_names(candidates)}", valid=options)


def _format_names(names: list[str]) -> str:
    return ", ".join(names[:_MAX_SHOWN]) + (", …" if len(names) > _MAX_SHOWN else "")


def _read_label(values: pl.Series, how: str) -> Label:
    missing = f", {values.null_count():,} missing" if values.has_nulls() else ""
    if _is_binary(values):
        is_positive = values.cast(pl.Float64) == 1.0
        return Label(values.name, None, f"{how}; 0 or 1, {is_positive.mean() or 0.0:.1%} are 1{missing}", is_positive)
    found = _get_values(values)
    assert found is not None, "other columns are no labels"
    (positive, negative), why = _choose_positive(values, found)
    is_positive = values == positive
    values_are = f"{_format(positive)!r} is 1 and {_format(negative)!r} is 0 ({why})"
    share = f"{is_positive.mean() or 0.0:.1%} are 1{missing}"
    return Label(values.name, _format(positive), f"{how}; {values_are}, {share}", is_positive)


def _choose_positive(values: pl.Series, found: tuple[object, object]) -> tuple[tuple[object, object], str]:
    """Order two values of a label as positive and negative, with the reason."""
    first, second = found
    for positive, negative in ((first, second), (second, first)):
        yes, no = (_format(value).strip().lower() for value in (positive, negative))
        if (yes in _POSITIVE and no not in _POSITIVE) or no in _NEGATIVE or _NEGATION.search(no):
            return (positive, negative), "by its meaning"
    num_first = int((values == first).sum())
    is_rarer = num_first < values.count() - num_first
    return ((first, second) if is_rarer else (second, first)), "the rarer value"


def _get_values(values: pl.Series) -> tuple[object, object] | None:
    """Return the two present values of a column, ascending; None where it has fewer or more, or is no label."""
    if not (values.dtype.is_numeric() or values.dtype in (pl.Boolean, pl.String)):
        return None
    if values.n_unique() - values.has_nulls() != 2:
        return None
    low, high = values.drop_nulls().unique().sort()
    return low, high


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


def _normalise(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    return _AFFIXES.sub("", words) or words
