"""Search for times among the values of a column, and for the form in which they are written."""

import json
import re
import time
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config.time_format import list_parts
from dlrm.data.inspect.sample import spread_evenly
from dlrm.data.inspect.time_forms import list_clocks, list_forms, names_local_zone
from dlrm.data.raw.times import is_time_type, parse_times

_TIME_NAME = re.compile(
    r"(^|[_ .-])(time|timestamp|ts|at|on|dt|date|datetime|day|hour|epoch|unix|ms|when|created|updated)"
    r"([_ .-](utc|gmt|local|str|text|ms|us|ns|sec))?$|timestamp|[a-z](Time|Date|At)$",
    re.IGNORECASE,
)
_HANDFUL = 32
"""Number of distinct values that forms are tried on before they are tried on all."""
_HANDFUL_SHARE = 0.8
_MOST = 0.9
"""Share of the distinct values of one form from which the others are told as an exception."""
_MIN_DIGITS = 50
"""Least number of distinct whole numbers without a name of times that are times if all of them are: of each hundred
neighbours some are none."""
_MIN_SECONDS, _MAX_SECONDS = -2_208_988_800, 4_102_444_800
"""Beginning of 1900 and of 2100: dates that are read in the wrong order are often beyond."""
_DAY_SECONDS = 86_400
_MAX_LENGTH = 60
"""Largest number of characters of a text that may be a time of an unknown form, rather than a sentence with one."""
_CLOCK, _YEAR, _PART = r"\b[0-2]?[0-9]:[0-5][0-9]\b", "(?:19|20)[0-9]{2}", r"\D{1,3}[0-9]{1,2}"
_DATE = rf"(?:^|\D)(?:{_YEAR}(?:{_PART}){{2}}|[0-9]{{1,2}}{_PART}\D{{1,3}}{_YEAR})(?:\D|$)"
_MONTH = rf"(?i)\b(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\W.*{_YEAR}\b"
_LOOKS = rf"{_CLOCK}.*\b{_YEAR}\b|\b{_YEAR}\b.*{_CLOCK}|{_DATE}|{_MONTH}"
"""A year with a clock time, a day and a month in numbers, or the name of a month."""
_SERIAL_1980, _SERIAL_2100 = 29_221, 73_051
"""Days since 1900 as spreadsheets count them."""


@dataclass(frozen=True)
class Times:
    """Distinct values that are all times."""

    seconds: NDArray[np.int64]
    """[k], seconds since 1970."""
    time_format: str | None
    """Form in which they are written; None for ISO 8601, numbers since 1970 and typed times."""


def find_times(distinct: pl.Series) -> Times | str:
    """Parse the distinct values of a column as times. Return a warning where they look like times that cannot be read
    without doubt, and an empty one where they are none.

    Numbers are times in a column that is called one, such as `created_at`, or if they are digits of a date and an hour.
    """
    if not is_time_type(distinct.to_arrow().type):
        return ""
    distinct = _make_whole(distinct)
    is_text, is_number = distinct.dtype == pl.String, distinct.dtype.is_numeric()
    is_named = _TIME_NAME.search(distinct.name) is not None
    is_iso = is_text and bool(distinct.str.contains("-", literal=True).all())
    plain = _parse_plain(distinct) if is_named or is_iso or not (is_text or is_number) else None
    if plain is not None and not (is_number and _is_future(plain)):
        return plain
    if distinct.dtype.is_float():
        return plain or (_describe_numbers(distinct) if is_named else "")
    if is_number and not is_named and len(distinct) < _MIN_DIGITS:
        return ""
    return _find_form(distinct, plain, is_named=is_named)


def _make_whole(distinct: pl.Series) -> pl.Series:
    """Return whole floats as integers: libraries without missing integers turn a column that has some into floats."""
    if not distinct.dtype.is_float():
        return distinct
    whole = distinct.cast(pl.Int64, strict=False)
    return whole if (whole.cast(distinct.dtype) == distinct).all() and not whole.has_nulls() else distinct


def _parse_plain(distinct: pl.Series) -> Times | None:
    """Parse values that are all times in ISO 8601, numbers since 1970 or typed; return None for others."""
    for values in (distinct.head(_HANDFUL), distinct):
        seconds, is_time = parse_times(values.to_arrow())
        if not is_time.all():
            return None
    return Times(seconds, None)


def _find_form(distinct: pl.Series, plain: Times | None, *, is_named: bool) -> Times | str:
    """Find the one form of all values, or a warning. plain: the values as numbers since 1970, if all are."""
    handful = distinct.gather([*spread_evenly(len(distinct), _HANDFUL)]).cast(pl.String).to_list()
    forms = [form for form in list_forms(handful, _HANDFUL_SHARE) if _is_credible(form, distinct, is_named=is_named)]
    clocks = list_clocks(handful)
    if not is_named and clocks:
        return f"{handful[0]!r} may be a time of day: {_format_line(distinct.name, clocks[0])} reads it"
    forms += clocks
    read: list[Times] = [] if plain is None else [plain]
    shares: dict[str, float] = {}
    for form in forms:
        seconds, is_time = parse_times(distinct.to_arrow(), form)
        is_time &= (seconds >= _MIN_SECONDS) & (seconds < _MAX_SECONDS)
        shares[form] = float(is_time.mean())
        # Readings that agree are one.
        if is_time.all() and not any(np.array_equal(seconds, other.seconds) for other in read):
            read.append(Times(seconds, form))
    # Rows of the past are learned from.
    read = [times for times in read if not _is_future(times)] or read
    universal = [times for times in read if not names_local_zone(times.time_format or "")]
    if len(universal) == 1:
        return universal[0]
    if distinct.dtype != pl.String:
        return plain or (_describe_numbers(distinct) if is_named else "")
    return _describe_doubt(distinct, universal or read, shares)


def _is_credible(form: str, distinct: pl.Series, *, is_named: bool) -> bool:
    """Whether values of a form are more likely times than something else: digits alone, say, may be anything."""
    if is_named:
        return True
    has_clock = "hour" in list_parts(form)
    if not re.sub("%.", "", form):
        return has_clock and len(distinct) >= _MIN_DIGITS
    return has_clock or "%Y" in form or "%b" in form or ("/" in form and len(distinct) >= _MIN_DIGITS)


def _is_future(times: Times) -> bool:
    return float(times.seconds.max()) > time.time() + _DAY_SECONDS


def _describe_doubt(texts: pl.Series, read: list[Times], shares: dict[str, float]) -> str:
    """Describe texts that look like times, with the lines that would read them; empty for other texts.

    read: forms of all texts, none or several or one with a local zone. shares: share of the texts of each form.
    """
    forms = [times.time_format for times in read if times.time_format is not None]
    if len(forms) == 1:
        line = _format_line(texts.name, forms[0])
        return f"{texts[0]!r} names a zone that has no fixed offset: {line} reads the local time"
    if forms:
        lines = " or ".join(_format_line(texts.name, form) for form in forms)
        return f"{texts[0]!r} may have the form {' or '.join(forms)}, and no other row tells which: use {lines}"
    form = max(shares, key=shares.__getitem__, default="")
    if form and shares[form] >= _MOST:
        _, is_time = parse_times(texts.to_arrow(), form)
        others = texts.filter(pl.Series(~is_time))
        valid = f"list such texts in data.schema.missing, and use {_format_line(texts.name, form)}"
        number = f"{len(others):,} of {len(texts):,} distinct texts are no times of the form {form}"
        return f"{number}, such as {others[0]!r}: {valid}"
    has_time = texts.str.contains(_LOOKS) & (texts.str.len_chars() <= _MAX_LENGTH)
    if has_time.to_numpy().mean() >= _MOST:
        why = f"{texts[0]!r} looks like a time, but no known form reads all texts"
        return f"{why}: write ISO 8601, or give the time_format"
    return ""


def _format_line(name: str, form: str) -> str:
    """Format the entry of the schema that reads times of a form."""
    quoted = (json.dumps(text, ensure_ascii=False) for text in (name, list_parts(form)[0], form))
    return "{{ name = {}, time_part = {}, time_format = {} }}".format(*quoted)


def _describe_numbers(numbers: pl.Series) -> str:
    """Describe numbers of which most are times, and those that may be the days of a spreadsheet; empty for others."""
    _, is_time = parse_times(numbers.to_arrow())
    if is_time.mean() >= _MOST:
        others = numbers.filter(pl.Series(~is_time))
        line = f'{{ name = {json.dumps(numbers.name, ensure_ascii=False)}, time_part = "hour" }}'
        number = f"{len(others):,} of {len(numbers):,} distinct numbers are no times, such as {others[0]}"
        return f"{number}: leave such values blank, and use {line}"
    if not ((numbers >= _SERIAL_1980) & (numbers < _SERIAL_2100)).all() or len(numbers) < _MIN_DIGITS:
        return ""
    return f"{numbers[0]} may be days since 1900, as spreadsheets count: write times as ISO 8601"
