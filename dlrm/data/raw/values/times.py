"""Times of raw columns, whatever their form, and the parts of a time that a feature may be made of. Everything in UTC.

Integers count seconds, milli-, micro- or nanoseconds since 1970. Between 1980 and 2100 the ranges of the four units are
disjoint, so that the magnitude of a number shows its unit. Below all of them, integers such as 20240131 are dates from
1980 to 2099. Other integers are not taken for times. Texts and digits of any other form need a format, which says where
the parts of a time stand.
"""

import re
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.config.time_format import TimePart, make_time_pattern
from dlrm.data.raw.block import format_value
from dlrm.data.raw.values.convert import convert_to_strings, find_missing, holds_text
from dlrm.data.raw.values.integers import convert_to_integers

VALID_TIMES = (
    "timestamps, dates, ISO 8601 text such as 2024-01-31 or 2024-01-31T17:05:00Z, integers such as 20240131, or "
    "seconds, milli-, micro- or nanoseconds since 1970, from 1980 to 2100"
)
_DAY_SECONDS = 86_400
_MIN_SECONDS, _MAX_SECONDS = 315_532_800, 4_102_444_800
"""Beginning of 1980 and of 2100."""
_MIN_DATE, _MAX_DATE = 19_800_101, 20_991_231
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ISO_8601 = (
    r"^(?P<time>(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"(?:[Tt ](?P<hour>[0-9]{2})(?::(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,][0-9]+)?)?)?"
    r" ?(?:[Zz]|UTC|(?P<sign>[+-])(?P<offset_hours>[0-9]{2})(?::?(?P<offset_minutes>[0-9]{2}))?(?: UTC)?)?)?)$"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH_NUMBERS = {name: number for number, name in enumerate(_MONTHS, start=1)}
_EXAMPLE = datetime(2024, 1, 31, 17, 5, tzinfo=UTC)
_MIN_SHORT_YEAR = 69
"""Least two-digit year of the last century, as in POSIX."""
_LEAP_YEAR = 1972
"""Year of times that have none: any day of the year is one of its days."""


def is_time_type(kind: pa.DataType) -> bool:
    """Whether a column of this Arrow type may hold times."""
    types = pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return types.is_timestamp(kind) or types.is_date(kind) or is_number or holds_text(kind) or types.is_null(kind)


def parse_times(values: pa.Array, time_format: str | None = None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Parse times of any form to whole seconds [n] since 1970, rounded down, and a mask [n] of values that are times.

    values: a column that `is_time_type` accepts, or a dictionary of such values. The seconds of other values, and of
    missing ones, are undefined. time_format: form of texts and of digits; None for ISO 8601 and numbers since 1970.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_decimal(values.type):
        # Warehouses unload integers as decimals.
        is_whole = values.type.scale <= 0
        values = convert_to_integers(values).ids if is_whole else values.cast(pa.float64(), safe=False)
    kind, is_present = values.type, ~find_missing(values)
    if time_format is not None and not pa.types.is_temporal(kind):
        texts = _convert_to_texts(values)
        if not re.sub("%.", "", time_format):
            # Whole floats in CSV.
            texts = texts.str.strip_suffix(".0")
        return _match_times(texts, make_time_pattern(time_format))
    if holds_text(kind):
        texts = convert_to_strings(values)
        parsed = _parse_alike_texts(texts)
        return _parse_texts(pl.Series(texts, dtype=pl.String)) if parsed is None else (parsed, ~find_missing(texts))
    if pa.types.is_floating(kind):
        # Libraries without missing integers turn a column that has some into floats.
        numbers = values.cast(pa.float64()).fill_null(np.nan).to_numpy()
        is_within = np.abs(numbers) < _MAX_SECONDS * _PER_SECOND["ns"]
        return _scale_by_magnitude(np.where(is_within, numbers, 0).astype(np.int64), is_within)
    if pa.types.is_integer(kind):
        numbers = pl.Series(values).cast(pl.Int64, strict=False)
        return _scale_by_magnitude(numbers.fill_null(0).to_numpy(), numbers.is_not_null().to_numpy())
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64) * _DAY_SECONDS, is_present
    per_second = _PER_SECOND[kind.unit] if pa.types.is_timestamp(kind) else _PER_SECOND["ms"]
    return values.cast(pa.int64()).fill_null(0).to_numpy() // per_second, is_present


def get_time_part(seconds: NDArray[np.int64], part: TimePart) -> NDArray[np.int64]:
    """Compute the part [n] of each time [n]: hour 0 to 23, weekday 1 (Monday) to 7, day 1 to 31, month 1 to 12,
    or the calendar year."""
    days, seconds_of_day = np.divmod(seconds, _DAY_SECONDS)
    if part == "hour":
        return seconds_of_day // 3600
    if part == "weekday":
        # 1 January 1970 was a Thursday.
        return (days + 3) % 7 + 1
    dates = days.astype("datetime64[D]")
    if part == "year":
        return dates.astype("datetime64[Y]").astype(np.int64) + 1970
    months = dates.astype("datetime64[M]")
    return months.astype(np.int64) % 12 + 1 if part == "month" else (dates - months).astype(np.int64) + 1


def explain_not_time(value: pa.Scalar, time_format: str | None = None) -> tuple[str, str]:
    """Return the message and the valid values for a value that is not a time."""
    message = f"{format_value(value.as_py())} is not a time"
    if time_format is None:
        return message, f"{VALID_TIMES}; or the form of the times as time_format in the schema"
    example = _EXAMPLE.strftime(time_format)
    return f"{message} of the form {time_format!r}", f"times such as {example}, or another time_format in the schema"


def _parse_alike_texts(texts: pa.Array) -> NDArray[np.int64] | None:
    """Parse texts to seconds [n] as `_parse_texts` does, twenty times as fast, if all or none of them have an offset.

    Return None if some text has another form.
    """
    for zone in (None, "UTC"):
        try:
            times = texts.cast(pa.timestamp("us", zone))
        except pa.ArrowInvalid:
            continue
        return times.cast(pa.int64()).fill_null(0).to_numpy() // _PER_SECOND["us"]
    return None


def _parse_texts(texts: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    numbers = texts.cast(pl.Int64, strict=False)
    # Seconds since 1970 may have a fraction.
    numbers = numbers.zip_with(numbers.is_not_null(), texts.cast(pl.Float64, strict=False).cast(pl.Int64, strict=False))
    seconds, is_time = _scale_by_magnitude(numbers.fill_null(0).to_numpy(), numbers.is_not_null().to_numpy())
    if is_time.all():
        return seconds, is_time
    found, is_match = _match_times(texts, _ISO_8601)
    return np.where(is_match, found, seconds), is_match | is_time


def _convert_to_texts(values: pa.Array) -> pl.Series:
    """Convert texts or numbers to texts, null if they are missing or cannot be read."""
    if pa.types.is_floating(values.type):
        # Libraries without missing integers turn a column that has some into floats.
        numbers = pl.Series(values.cast(pa.float64()))
        values = numbers.set(numbers != numbers.floor(), None).cast(pl.Int64, strict=False).to_arrow()
    texts = convert_to_strings(values) if holds_text(values.type) else values.cast(pa.large_string())
    return pl.Series(texts, dtype=pl.String)


def _match_times(texts: pl.Series, pattern: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Parse texts [n] by a regular expression with the groups of `make_time_pattern`, as `parse_times` does."""
    groups = texts.str.extract_groups(pattern).struct

    def read(name: str, default: int = 0) -> NDArray[np.int64]:
        if name not in groups.fields:
            return np.full(len(texts), default, dtype=np.int64)
        return groups.field(name).cast(pl.Int64, strict=False).fill_null(default).to_numpy()

    def is_letter(name: str, letter: str) -> NDArray[np.bool_]:
        if name not in groups.fields:
            return np.zeros(len(texts), dtype=np.bool_)
        return (groups.field(name).str.to_lowercase() == letter).fill_null(False).to_numpy()

    year, month, hour = read("year", _LEAP_YEAR), read("month", 1), read("hour")
    if "short_year" in groups.fields:
        short_year = read("short_year")
        year = short_year + np.where(short_year < _MIN_SHORT_YEAR, 2000, 1900)
    if "month_name" in groups.fields:
        names = groups.field("month_name").str.slice(0, 3).str.to_lowercase()
        month = names.replace_strict(_MONTH_NUMBERS, default=0, return_dtype=pl.Int64).fill_null(0).to_numpy()
    days, is_time = _count_days(year, month, read("day", 1))
    if "half_hour" in groups.fields:
        half_hour = read("half_hour")
        hour = half_hour % 12 + 12 * is_letter("half", "p")
        is_time &= (half_hour >= 1) & (half_hour <= 12)
    minute, second, offset_hours, offset_minutes = map(read, ("minute", "second", "offset_hours", "offset_minutes"))
    # Second 60 is a leap second.
    is_time &= (hour < 24) & (minute < 60) & (second <= 60) & (offset_hours < 24) & (offset_minutes < 60)
    offset = (offset_hours * 60 + offset_minutes) * np.where(is_letter("sign", "-"), -60, 60)
    seconds = days * _DAY_SECONDS + hour * 3600 + minute * 60 + second - offset
    return seconds, is_time & groups.field("time").is_not_null().to_numpy()


def _count_days(
    year: NDArray[np.int64], month: NDArray[np.int64], day: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Count the days [n] since 1970 of each date, and return a mask [n] of dates that exist; others are undefined."""
    is_date = (month >= 1) & (month <= 12)
    months = ((year - 1970) * 12 + np.where(is_date, month, 1) - 1).astype("datetime64[M]")
    first_days = months.astype("datetime64[D]").astype(np.int64)
    num_days = (months + 1).astype("datetime64[D]").astype(np.int64) - first_days
    return first_days + day - 1, is_date & (day >= 1) & (day <= num_days)


def _scale_by_magnitude(
    numbers: NDArray[np.int64], is_present: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert each number [n], of some unit or a date such as 20240131, to seconds; return them and a mask [n] of
    numbers that are times."""
    seconds, is_time = np.zeros_like(numbers), np.zeros(len(numbers), dtype=np.bool_)
    for per_second in _PER_SECOND.values():
        is_unit = (numbers >= _MIN_SECONDS * per_second) & (numbers < _MAX_SECONDS * per_second) & is_present
        seconds = np.where(is_unit, numbers // per_second, seconds)
        is_time |= is_unit
    may_be_date = (numbers >= _MIN_DATE) & (numbers <= _MAX_DATE) & is_present
    if may_be_date.any():
        days, is_date = _count_days(numbers // 10_000, numbers // 100 % 100, numbers % 100)
        is_date &= may_be_date
        seconds = np.where(is_date, days * _DAY_SECONDS, seconds)
        is_time |= is_date
    return seconds, is_time
