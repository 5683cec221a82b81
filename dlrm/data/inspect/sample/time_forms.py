"""Search for times in texts and numbers: the forms in which programs write them, found by trying them.

A form is a date, then perhaps a time of day, then perhaps a zone; or a time of day and a date. Dates with dots begin
with the day wherever they are in use; others, with slashes or dashes, begin with the day or with the month.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config.time_format import list_parts, make_time_pattern
from dlrm.data.inspect.sample.file_sample import HANDFUL_SHARE, MOST, format_entry, pick_handful
from dlrm.data.raw.values.times import is_time_type, parse_times

_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%y%m%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y"),
    *("%d/%m/%y", "%m/%d/%y", "%y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%d-%m-%y", "%m-%d-%y", "%y-%m-%d", "%d%m%Y"),
    *("%m%d%Y", "%d/%b/%Y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %b %y", "%d %b, %Y", "%d. %b %Y", "%d%b%Y"),
    *("%d%b%y", "%b %d %Y", "%b %d, %Y", "%b-%d-%Y", "%Y-%b-%d", "%Y/%b/%d", "%Y %b %d"),
)
_JOINTS = ("", " ", "T", ", ", ":", "-", "_", " - ", " at ")
_CLOCKS = (
    *("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M:%S%p", "%I:%M %p", "%I:%M%p", "%I.%M.%S %p", "%H.%M.%S", "%H.%M"),
    *("%H-%M-%S", "%H%M%S", "%H%M", "%H", "%I %p", "%I%p", "%H:%M:%S:%f", "%I:%M:%S:%f%p"),
)
_ZONES = ("", "%z", " %z", " %z %Z", "%z[%Z]", " %z (%Z)", " GMT%z (%Z)")
_WHOLE = (
    *("%b %d %H:%M:%S %Y", "%b %d %H:%M:%S %z %Y", "%b %d %I:%M:%S %p %z %Y", "%b %d %H:%M:%S", "%Y-%m", "%Y/%m"),
    *("%Y%m", "%m/%Y", "%b %Y", "%b-%Y", "%b-%y"),
)
"""Forms of other orders: from C, Java and syslog, and months without a day."""
_LOCAL_ZONE = re.compile(r" ?[A-Z]{2,5}")
_DIGITS = re.compile("(?:%[YymdHMS])+")
"""Forms of digits alone, in which nothing need stand between a date and a time of day."""
_MAX_FORM_LENGTH = 80
_START = re.compile(r"(?P<bracket>\[?)(?P<weekday>(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?(?=,? ))?", re.IGNORECASE)


def list_forms(texts: Sequence[str], least_share: float) -> list[str]:
    """List the forms of `time_format` that read at least this share of a handful of texts, as far as they look."""
    counts = Counter(chain.from_iterable(dict.fromkeys(_list_forms_of(text)) for text in texts))
    return [form for form, count in counts.items() if count >= least_share * len(texts)]


def list_clocks(texts: Sequence[str]) -> list[str]:
    """List the forms of a time of day without a date that read all of a handful of texts, as far as they look."""
    return [form for form in _CLOCKS if ":" in form and all(_compile(form).fullmatch(text) for text in texts)]


def names_local_zone(form: str) -> bool:
    """Whether a form ends in the name of a zone that has no fixed offset, such as EST."""
    return re.search(r"(?<!%)[A-Z]{2,5}$", form) is not None


def _list_forms_of(text: str) -> Iterator[str]:
    text = text.strip()
    if len(text) > _MAX_FORM_LENGTH or not any(letter.isdigit() for letter in text):
        return
    start = _START.match(text)
    assert start is not None, "it matches a blank start"
    before, rest, end = start["bracket"], text[start.end() :], ""
    if start["weekday"]:
        comma = "," if rest.startswith(",") else ""
        before, rest = f"{before}%a{comma} ", rest[len(comma) :].lstrip()
    if before.startswith("[") and rest.endswith("]"):
        rest, end = rest[:-1], "]"
    for form in chain((form for form in _WHOLE if _compile(form).fullmatch(rest)), _compose(rest)):
        yield before + form + end


def _compose(text: str) -> Iterator[str]:
    """Iterate over the forms of a date, with or without a time of day and a zone, that `text` may have."""
    for date, after_date in _match_starts(_DATES, text):
        if not after_date:
            yield date
        for joint in (joint for joint in _JOINTS if after_date.lower().startswith(joint.lower())):
            for clock, zone in _match_starts(_CLOCKS, after_date[len(joint) :].lstrip()):
                if not joint and not _DIGITS.fullmatch(date + clock):
                    continue
                ends = [end for end in _ZONES if (_compile(end).fullmatch(zone) if end else not zone)]
                yield from (date + joint + clock + end for end in ends)
                if not ends and _LOCAL_ZONE.fullmatch(zone):
                    yield date + joint + clock + zone
    for clock, after_clock in _match_starts(_CLOCKS, text):
        joint = next((joint for joint in (", ", " ") if after_clock.startswith(joint)), "")
        if joint:
            yield from (clock + joint + date for date in _DATES if _compile(date).fullmatch(after_clock[len(joint) :]))


def _match_starts(forms: Sequence[str], text: str) -> Iterator[tuple[str, str]]:
    """Iterate over the forms with which `text` may begin, and over what follows."""
    for form in forms:
        if found := _compile_start(form).match(text):
            yield form, text[found.end() :]


@cache
def _compile(form: str) -> re.Pattern[str]:
    return re.compile(make_time_pattern(form))


@cache
def _compile_start(form: str) -> re.Pattern[str]:
    return re.compile(make_time_pattern(form).removesuffix(r"\s*$"))


_TIME_NAME = re.compile(
    r"(^|[_ .-])(time|timestamp|ts|at|on|dt|date|datetime|day|hour|epoch|unix|ms|when|created|updated)"
    r"([_ .-](utc|gmt|local|str|text|ms|us|ns|sec))?$|timestamp|[a-z](Time|Date|At)$",
    re.IGNORECASE,
)
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
    for values in (pick_handful(distinct), distinct):
        seconds, is_time = parse_times(values.to_arrow())
        if not is_time.all():
            return None
    return Times(seconds, None)


def _find_form(distinct: pl.Series, plain: Times | None, *, is_named: bool) -> Times | str:
    """Find the one form of all values, or a warning. plain: the values as numbers since 1970, if all are."""
    handful = pick_handful(distinct).cast(pl.String).to_list()
    forms = [form for form in list_forms(handful, HANDFUL_SHARE) if _is_credible(form, distinct, is_named=is_named)]
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
    """Describe texts that look like times, with the lines to read them; empty for other texts.

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
    if form and shares[form] >= MOST:
        _, is_time = parse_times(texts.to_arrow(), form)
        others = texts.filter(pl.Series(~is_time))
        valid = f"list such texts in data.schema.missing, and use {_format_line(texts.name, form)}"
        number = f"{len(others):,} of {len(texts):,} distinct texts are no times of the form {form}"
        return f"{number}, such as {others[0]!r}: {valid}"
    has_time = texts.str.contains(_LOOKS) & (texts.str.len_chars() <= _MAX_LENGTH)
    if has_time.to_numpy().mean() >= MOST:
        why = f"{texts[0]!r} looks like a time, but no known form reads all texts"
        return f"{why}: write ISO 8601, or give the time_format"
    return ""


def _format_line(name: str, form: str) -> str:
    """Format the entry of the schema that reads times of a form."""
    return format_entry(name, {"time_part": list_parts(form)[0], "time_format": form})


def _describe_numbers(numbers: pl.Series) -> str:
    """Describe numbers if most of them are times, or if all may be the days of a spreadsheet; empty otherwise."""
    _, is_time = parse_times(numbers.to_arrow())
    if is_time.mean() >= MOST:
        others = numbers.filter(pl.Series(~is_time))
        line = format_entry(numbers.name, {"time_part": "hour"})
        number = f"{len(others):,} of {len(numbers):,} distinct numbers are no times, such as {others[0]}"
        return f"{number}: leave such values blank, and use {line}"
    if not ((numbers >= _SERIAL_1980) & (numbers < _SERIAL_2100)).all() or len(numbers) < _MIN_DIGITS:
        return ""
    return f"{numbers[0]} may be days since 1900, as spreadsheets count: write times as ISO 8601"
