"""Search for numbers in texts as people write them: with a decimal comma, groups of digits, a currency or %."""

from collections.abc import Mapping

import polars as pl

from dlrm.config.schema import DecimalMark
from dlrm.data.inspect.sample.file_sample import HANDFUL_SHARE, MOST, format_entry, pick_handful
from dlrm.data.raw.values.convert import make_number_pattern, parse_number_texts

_MARKS: tuple[DecimalMark, ...] = (".", ",")
_THOUSANDS = r"^\s*-?[0-9]{1,3}(?:\.[0-9]{3})*\s*$"
_FIRST_TEXTS = 200
"""Number of texts that are looked at before all are."""
_SOME = 0.02
_MIN_GROUPED = 1000.0
_UNITS = (
    "[kKMGT]i?B|mln|bn|mio|mrd|[kmµ]?g|lbs?|oz|[kcmµn]?m|mi|ft|in|[mµn]?s|secs?|mins?|minutes?|h|hrs?|hours?|d|days?"
    "|weeks?|mos?|months?|y|yrs?|years?|[mkMG]?Hz|k?Wh?|m?l|px|pcs?|°?[CF]|[kc]?m²|km/h|‰"
)
_UNREAD = (
    r"^(?:[~<>≤≥]\s*[0-9][0-9.,]*|[~<>≤≥]?\s*\p{Sc}?\s*[-+]?(?:0x[0-9a-fA-F]+|(?:[0-9]+\s+)?[0-9]+/[0-9]+"
    rf"|[0-9]+(?:[.,][0-9]+)*\s*(?:[kKmMbB]|\+|(?:{_UNITS})\.?)))$"
)
"""Numbers with a suffix, a unit or a sign such as <, fractions, and hexadecimal numbers."""
_MIN_UNREAD = 30
"""Least number of distinct texts of such forms that are worth a warning: fewer are good ids."""


def find_decimal_mark(distinct: pl.Series, delimiter: str | None) -> tuple[DecimalMark | None, str]:
    """Find the decimal mark of distinct texts that are all numbers, though not all plain ones.

    Return None if they are no numbers, or not without doubt, and a warning if they look like numbers all the same.
    delimiter: the one of text files; where it is a comma, `3,17` may be a list of two.
    """
    handful = pick_handful(distinct)
    if handful.str.contains("[0-9]").to_numpy().mean() < HANDFUL_SHARE:
        return None, ""
    is_known = handful.str.contains(_UNREAD)
    for mark in _MARKS:
        is_known |= parse_number_texts(handful, mark).is_not_null()
    if is_known.to_numpy().mean() < HANDFUL_SHARE:
        return None, ""
    is_plain = distinct.str.strip_chars().cast(pl.Float64, strict=False).is_not_null()
    readings: dict[DecimalMark, pl.Series] = {mark: parse_number_texts(distinct, mark) for mark in _MARKS}
    complete: list[DecimalMark] = [mark for mark in _MARKS if not readings[mark].has_nulls()]
    if not complete:
        return None, _describe_others(distinct, readings, is_plain)
    mark: DecimalMark | None = complete[0]
    if len(complete) > 1 and not readings["."].equals(readings[","]):
        mark = _settle(readings)
    if is_plain.all() and mark != ",":
        return None, ""
    if mark is None:
        texts = distinct.filter(readings["."] != readings[","])
        values = " or ".join(f"{parse_number_texts(texts.head(1), mark)[0]:g}" for mark in _MARKS)
        lines = f'{format_entry(distinct.name, {"decimal_mark": "."})} reads the one, decimal_mark = "," the other'
        return None, f"{texts[0]!r} may be {values}: in data.schema.dense {lines}"
    doubt = _find_doubt(distinct, readings[mark], mark, delimiter)
    return (mark, "") if doubt is None else (None, doubt)


def has_points_between_thousands(texts: pl.Series) -> bool:
    """Whether texts are whole numbers such as 1.234 and 789, although all could be plain numbers."""
    if not texts.head(_FIRST_TEXTS).str.contains(_THOUSANDS).all():
        return False
    return find_decimal_mark(texts.unique(maintain_order=True), None)[0] == ","


def _settle(readings: Mapping[DecimalMark, pl.Series]) -> DecimalMark | None:
    """Choose between two readings of numbers such as 1,234: thousands, if numbers below a thousand stand alone.

    With three digits after each decimal mark, whole numbers would have them too.
    """
    point, comma = readings["."], readings[","]
    alone = point.filter(point == comma).abs().to_numpy()
    if not len(alone) or alone.max() >= _MIN_GROUPED:
        return None
    return "." if point.abs().to_numpy().sum() > comma.abs().to_numpy().sum() else ","


def _find_doubt(texts: pl.Series, numbers: pl.Series, mark: DecimalMark, delimiter: str | None) -> str | None:
    """Find why texts may be no numbers although all can be read: a warning, empty for names such as 007; None for
    numbers without doubt."""
    groups = texts.str.extract_groups(make_number_pattern(mark)).struct
    whole, fraction = groups.field("whole").fill_null(""), groups.field("fraction")
    if whole.str.contains("^0[0-9]").any():
        return ""
    line = f"{format_entry(texts.name, {'decimal_mark': mark})} in data.schema.dense"
    unit = groups.field("currency").fill_null(groups.field("unit"))
    units = unit.drop_nulls().unique(maintain_order=True)
    bare = texts.filter(unit.is_null() & (numbers != 0))
    if len(units) > 1:
        examples = " and ".join(repr(texts.filter(unit == one)[0]) for one in units.head(2))
        return f"{examples} are numbers of several units: {line} reads the numbers alone"
    if "%" in units and len(bare):
        return f"only some texts have %, others such as {bare[0]!r} have none: {line} reads the numbers alone"
    num_groups = whole.str.count_matches("[^0-9]")
    if not len(units) and not fraction.is_not_null().any() and num_groups.min() == num_groups.max() != 0:
        return f"{texts[0]!r} may be a number or a name of several parts: {line} reads it as {numbers[0]:g}"
    is_number = len(units) > 0 or num_groups.max() != 0 or texts.str.contains(r"^\s*[-\u2212(]").any()
    # Ids have no zeros in front.
    is_decimal = fraction.str.contains("^0[0-9]").any() or (whole == "0").any()
    if mark == "." or delimiter not in (",", None) or is_number or is_decimal:
        return None
    return f"{texts[0]!r} may be a number or a list of two: {line} reads it as a number"


def _describe_others(texts: pl.Series, readings: Mapping[DecimalMark, pl.Series], is_plain: pl.Series) -> str:
    """Describe texts if most, not all, are numbers; empty otherwise, and if the numbers are plain whole ones."""
    mark = max(_MARKS, key=lambda mark: readings[mark].count())
    is_read, is_unread = readings[mark].is_not_null(), texts.str.contains(_UNREAD)
    num_known = (is_read | is_unread).sum()
    if num_known < MOST * len(texts):
        return ""
    if len(texts) >= _MIN_UNREAD and (is_unread & ~is_read).sum() > _SOME * len(texts):
        example = texts.filter(is_unread & ~is_read)[0]
        return f"texts such as {example!r} are numbers of a form that is not read: write plain numbers"
    # Names may be plain whole numbers for the most part.
    is_named = (is_plain | ~is_read).all() and not texts.filter(is_read).str.contains(r"[0-9][.,][0-9]").any()
    if is_read.sum() < MOST * len(texts) or is_named:
        return ""
    others = texts.filter(~is_read)
    number = f"{len(others):,} of {len(texts):,} distinct texts are no numbers, such as {others[0]!r}"
    line = f"{format_entry(texts.name, {'decimal_mark': mark})} in data.schema.dense"
    return f"{number}: list such texts in data.schema.missing, and use {line}"
