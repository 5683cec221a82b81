"""Rules that choose the use of a column by its name, its type and some of its values.

- Left out are constant columns, columns without values, times, and columns with a different value in every row (text,
  or integers that have the name of an id or are in ascending order).
- Floats and booleans are dense, text is categorical, lists of text or integers are multi-hot.
- Integers with the name of an id, such as `user_id` or `zip`, are categorical; so are those with at most MAX_FEW_VALUES
  distinct values, and those that look like hashes: most values occur once, in a range far wider than their number.
  Other integers are dense.
- Dense columns of non-negative whole numbers with a heavy tail get the transform `log`, booleans `none`, and others
  `standardise`.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

MAX_FEW_VALUES = 50
"""Largest number of distinct integers that are treated as names rather than quantities."""
MIN_ROWS_FOR_UNIQUENESS = 100
"""Least number of present values from which a different value in every row is not considered accidental."""
HEAVY_TAIL = 10.0
"""Ratio of the 99th percentile to the median (at least 1) from which a tail is heavy."""
HASH_RANGE = 1000.0
"""Ratio of the range of integers to the number of distinct ones above which they look like hashes."""
MAX_NAME_LENGTH = 200
"""Longest name of a column that a schema accepts, in characters."""

_ID_NAME = re.compile(
    r"(^|_)(id|ids|uid|uuid|guid|key|hash|code|idx|index|zip|zipcode|postcode)$|[a-z](Id|ID|Key|Hash|Code)$", re.I
)
_TIME_NAME = re.compile(r"(^|_)(time|timestamp|ts|at|date|datetime|epoch|ms)$|timestamp|[a-z](Time|Date)$", re.I)
_TIME_TEXT = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2})?.*)?$"
_EPOCH_SECONDS = (300_000_000, 5_000_000_000)
_EPOCH_UNITS = (1, 10**3, 10**6, 10**9)
_SEPARATORS = "|;"
_LIST_SHARE = 0.1
"""Share of present texts with a separator above which the texts are treated as lists."""
_FEW_SHARE = 0.2
"""Share of present texts that are not numbers below which the column is likely one of numbers."""


@dataclass(frozen=True)
class Choice:
    """The chosen use of one column."""

    name: str
    role: Literal["dense", "categorical", "left_out"]
    why: str
    settings: dict[str, str | bool] = field(default_factory=dict[str, str | bool])
    """Fields of `DenseColumn` or `CategoricalColumn` other than the name."""
    otherwise: str = ""
    """Another possible use, in words; empty where there is none."""


def choose(values: pl.Series, type_name: str, *, is_text: bool = False) -> Choice:
    """Choose the use of the column of `values`.

    type_name: type in the files, or a reason such as `not in b.parquet` to leave the column out. is_text: the values
    come from text files, where lists are texts with separators.
    """
    name, present = values.name, values.drop_nulls()
    if not name.strip():
        return _leave_out(name, "it has no name")
    if len(name) > MAX_NAME_LENGTH:
        return _leave_out(name, f"its name is longer than {MAX_NAME_LENGTH} characters")
    if type_name.startswith("not "):
        return _leave_out(name, type_name)
    if len(present) == 0:
        return _leave_out(name, "all values are missing" if len(values) else "there are no rows")
    if isinstance(values.dtype, pl.List):
        return _choose_for_lists(name, present, type_name)
    if values.dtype.is_temporal():
        return _leave_out(name, f"{type_name}: a time; to use it, add a column for the hour, the weekday or the age")
    if present.n_unique() == 1:
        return _leave_out(name, f"constant: {present[0]!r}{' or missing' if present.len() < values.len() else ''}")
    if values.dtype == pl.String:
        return _choose_for_texts(name, present, _format_missing(values), can_be_list=is_text)
    if values.dtype == pl.Boolean:
        return Choice(name, "dense", f"{type_name}{_format_missing(values)}", {"transform": "none"})
    if values.dtype.is_integer():
        integers = present.cast(pl.Int64, strict=False)
        if integers.has_nulls():
            return _leave_out(name, f"{type_name}: contains numbers beyond int64", "categorical, if written as text")
        return _choose_for_integers(name, integers, type_name, _format_missing(values))
    if values.dtype.is_numeric():
        return _choose_for_floats(name, present.cast(pl.Float64), type_name, _format_missing(values))
    return _leave_out(name, f"{type_name}: not a number, a text or a list of them")


def _leave_out(name: str, why: str, otherwise: str = "") -> Choice:
    return Choice(name, "left_out", why, otherwise=otherwise)


def _format_missing(values: pl.Series) -> str:
    num = values.null_count()
    return f", {num / values.len():.1%} missing" if num else ""


def _choose_for_lists(name: str, present: pl.Series, type_name: str) -> Choice:
    inner = present.explode().drop_nulls()
    if inner.dtype == pl.String:
        kind = "string"
    elif inner.dtype.is_integer():
        kind = "integer"
    else:
        return _leave_out(name, f"{type_name}: lists of values that are neither text nor integers")
    why = f"lists of {present.list.len().mean():.1f} values on average, {inner.n_unique():,} distinct"
    return Choice(name, "categorical", why, {"type": kind, "multi_hot": True})


def _choose_for_texts(name: str, present: pl.Series, missing: str, *, can_be_list: bool) -> Choice:
    num_distinct = present.n_unique()
    if present.str.contains(_TIME_TEXT).all():
        return _leave_out(name, "a time; to use it, add a column for the hour, the weekday or the age")
    for separator in _SEPARATORS if can_be_list else "":
        if present.str.contains(separator, literal=True).mean() > _LIST_SHARE:  # type: ignore[operator], of booleans
            inner = present.str.split(separator).explode()
            settings: dict[str, str | bool] = {"type": "string", "multi_hot": True, "separator": separator}
            why = f"texts with {separator!r} between values, {inner.n_unique():,} distinct{missing}"
            return Choice(name, "categorical", why, settings, "one value: remove multi_hot")
    if _differs_in_every_row(present):
        return _leave_out(name, "a different value in every inspected row")
    description = f"text, {num_distinct:,} distinct values{missing}"
    no_numbers = present.filter(present.cast(pl.Float64, strict=False).is_null())
    if 0 < len(no_numbers) < _FEW_SHARE * len(present):
        description += f"; all are numbers except some such as {no_numbers[0]!r}"
        return Choice(name, "categorical", description, {"type": "string"}, "dense, if those are left blank")
    return Choice(name, "categorical", description, {"type": "string"})


def _choose_for_integers(name: str, present: pl.Series, type_name: str, missing: str) -> Choice:
    num_distinct, low, high = present.n_unique(), int(present.min()), int(present.max())  # type: ignore[arg-type]
    description = f"{type_name}, {num_distinct:,} distinct values from {low:,} to {high:,}{missing}"
    settings: dict[str, str | bool] = {"type": "integer"}
    if _TIME_NAME.search(name) and any(
        _EPOCH_SECONDS[0] * u <= low <= high < _EPOCH_SECONDS[1] * u for u in _EPOCH_UNITS
    ):
        return _leave_out(name, f"{description}: a time; to use it, add a column for the hour, the weekday or the age")
    is_named_id = bool(_ID_NAME.search(name))
    if _differs_in_every_row(present) and (is_named_id or present.is_sorted()):
        return _leave_out(name, f"{description}: a different value in every inspected row")
    if is_named_id:
        return Choice(name, "categorical", f"{description}, has the name of an id", settings, "dense")
    if num_distinct <= MAX_FEW_VALUES:
        return Choice(name, "categorical", f"{description}: few values", settings, _describe_dense_use(present))
    if num_distinct > 0.5 * present.len() and high - low > HASH_RANGE * num_distinct:
        return Choice(name, "categorical", f"{description}: looks like a hash", settings, _describe_dense_use(present))
    return Choice(
        name, "dense", description, {"transform": _choose_transform(present)}, 'categorical, type = "integer"'
    )


def _choose_for_floats(name: str, present: pl.Series, type_name: str, missing: str) -> Choice:
    low, high = float(present.min()), float(present.max())  # type: ignore[arg-type], of numbers
    description = f"{type_name}, {low:.6g} to {high:.6g}{missing}"
    is_whole = bool((present == present.round()).all())
    if is_whole and _ID_NAME.search(name):
        return _leave_out(name, f"{description}, has the name of an id: categorical, if written as integers or text")
    transform = _choose_transform(present) if is_whole else "standardise"
    otherwise = "standardise" if transform == "log" else "log" if is_whole and low >= 0 else ""
    return Choice(name, "dense", description, {"transform": transform}, otherwise)


def _choose_transform(present: pl.Series) -> str:
    """Choose `log` for counts with a heavy tail, otherwise `standardise`."""
    middle, far = present.quantile(0.5) or 0.0, present.quantile(0.99) or 0.0
    is_count = (present.min() or 0) >= 0  # type: ignore[operator], of numbers
    return "log" if is_count and far >= HEAVY_TAIL * max(middle, 1.0) else "standardise"


def _describe_dense_use(present: pl.Series) -> str:
    return f'dense, transform = "{_choose_transform(present)}"'


def _differs_in_every_row(present: pl.Series) -> bool:
    return present.len() >= MIN_ROWS_FOR_UNIQUENESS and present.n_unique() == present.len()
