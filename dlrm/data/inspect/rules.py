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
"""Largest number of distinct integers that are taken for names of something rather than quantities."""
MIN_ROWS_TO_TELL = 100
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
"""Share of present texts with a separator above which the texts are taken for lists."""
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
        return _left_out(name, "it has no name")
    if len(name) > MAX_NAME_LENGTH:
        return _left_out(name, f"its name is longer than {MAX_NAME_LENGTH} letters")
    if type_name.startswith("not "):
        return _left_out(name, type_name)
    if len(present) == 0:
        return _left_out(name, "all values are missing" if len(values) else "there are no rows")
    if isinstance(values.dtype, pl.List):
        return _list(name, present, type_name)
    if values.dtype.is_temporal():
        return _left_out(name, f"{type_name}: a time; hour, weekday or age as columns of their own could be taken")
    if present.n_unique() == 1:
        return _left_out(name, f"constant: {present[0]!r}{' or missing' if present.len() < values.len() else ''}")
    if values.dtype == pl.String:
        return _text(name, present, _missing(values), can_be_list=is_text)
    if values.dtype == pl.Boolean:
        return Choice(name, "dense", f"{type_name}{_missing(values)}", {"transform": "none"})
    if values.dtype.is_integer():
        integers = present.cast(pl.Int64, strict=False)
        if integers.has_nulls():
            return _left_out(name, f"{type_name}: holds numbers beyond int64", "categorical, written as text")
        return _integer(name, integers, type_name, _missing(values))
    if values.dtype.is_numeric():
        return _float(name, present.cast(pl.Float64), type_name, _missing(values))
    return _left_out(name, f"{type_name}: neither a number nor a text nor a list of them")


def _left_out(name: str, why: str, otherwise: str = "") -> Choice:
    return Choice(name, "left_out", why, otherwise=otherwise)


def _missing(values: pl.Series) -> str:
    num = values.null_count()
    return f", {num / values.len():.1%} missing" if num else ""


def _list(name: str, present: pl.Series, type_name: str) -> Choice:
    inner = present.explode().drop_nulls()
    if inner.dtype == pl.String:
        kind = "string"
    elif inner.dtype.is_integer():
        kind = "integer"
    else:
        return _left_out(name, f"{type_name}: lists of something that is neither text nor integer")
    why = f"lists of {present.list.len().mean():.1f} values on average, {inner.n_unique():,} distinct"
    return Choice(name, "categorical", why, {"type": kind, "multi_hot": True})


def _text(name: str, present: pl.Series, missing: str, *, can_be_list: bool) -> Choice:
    num_distinct = present.n_unique()
    if present.str.contains(_TIME_TEXT).all():
        return _left_out(name, "a time; hour, weekday or age as columns of their own could be taken")
    for separator in _SEPARATORS if can_be_list else "":
        if present.str.contains(separator, literal=True).mean() > _LIST_SHARE:  # type: ignore[operator], of booleans
            inner = present.str.split(separator).explode()
            settings: dict[str, str | bool] = {"type": "string", "multi_hot": True, "separator": separator}
            why = f"texts with {separator!r} between values, {inner.n_unique():,} distinct{missing}"
            return Choice(name, "categorical", why, settings, "one value: leave multi_hot out")
    if _is_own_in_every_row(present):
        return _left_out(name, "a value of its own in every row that was looked at")
    what = f"text, {num_distinct:,} distinct values{missing}"
    no_numbers = present.filter(present.cast(pl.Float64, strict=False).is_null())
    if 0 < len(no_numbers) < _FEW_SHARE * len(present):
        what += f"; all numbers but some such as {no_numbers[0]!r}"
        return Choice(name, "categorical", what, {"type": "string"}, "dense, once those are blank")
    return Choice(name, "categorical", what, {"type": "string"})


def _integer(name: str, present: pl.Series, type_name: str, missing: str) -> Choice:
    num_distinct, low, high = present.n_unique(), int(present.min()), int(present.max())  # type: ignore[arg-type]
    what = f"{type_name}, {num_distinct:,} distinct values from {low:,} to {high:,}{missing}"
    as_id: dict[str, str | bool] = {"type": "integer"}
    if _TIME_NAME.search(name) and any(
        _EPOCH_SECONDS[0] * u <= low <= high < _EPOCH_SECONDS[1] * u for u in _EPOCH_UNITS
    ):
        return _left_out(name, f"{what}: a time; hour, weekday or age as columns of their own could be taken")
    is_named_id = bool(_ID_NAME.search(name))
    if _is_own_in_every_row(present) and (is_named_id or present.is_sorted()):
        return _left_out(name, f"{what}: a value of its own in every row that was looked at")
    if is_named_id:
        return Choice(name, "categorical", f"{what}, named an id", as_id, "dense")
    if num_distinct <= MAX_FEW_VALUES:
        return Choice(name, "categorical", f"{what}: few", as_id, _dense_words(present))
    if num_distinct > 0.5 * present.len() and high - low > HASH_RANGE * num_distinct:
        return Choice(name, "categorical", f"{what}: like a hash", as_id, _dense_words(present))
    return Choice(name, "dense", what, {"transform": _transform(present)}, 'categorical, type = "integer"')


def _float(name: str, present: pl.Series, type_name: str, missing: str) -> Choice:
    low, high = float(present.min()), float(present.max())  # type: ignore[arg-type], of numbers
    what = f"{type_name}, {low:.6g} to {high:.6g}{missing}"
    is_whole = bool((present == present.round()).all())
    if is_whole and _ID_NAME.search(name):
        return _left_out(name, f"{what}, named an id: written as integers or text it could be categorical")
    transform = _transform(present) if is_whole else "standardise"
    otherwise = "standardise" if transform == "log" else "log" if is_whole and low >= 0 else ""
    return Choice(name, "dense", what, {"transform": transform}, otherwise)


def _transform(present: pl.Series) -> str:
    """Choose `log` for counts with a heavy tail, otherwise `standardise`."""
    middle, far = present.quantile(0.5) or 0.0, present.quantile(0.99) or 0.0
    is_count = (present.min() or 0) >= 0  # type: ignore[operator], of numbers
    return "log" if is_count and far >= HEAVY_TAIL * max(middle, 1.0) else "standardise"


def _dense_words(present: pl.Series) -> str:
    return f'dense, transform = "{_transform(present)}"'


def _is_own_in_every_row(present: pl.Series) -> bool:
    return present.len() >= MIN_ROWS_TO_TELL and present.n_unique() == present.len()
