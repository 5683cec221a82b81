"""Search for the weight of the rows: a column whose name can mean nothing else, or the one asked for."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from dlrm.config import format_some
from dlrm.data.errors import DataError
from dlrm.data.inspect.judge.label_words import split_words
from dlrm.data.inspect.sample.file_sample import FileSample, is_usable

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
