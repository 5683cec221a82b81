"""Conversion of columns of text to numbers, plain ones or as people write them, and the words for missing values.

People write numbers with a decimal comma, groups of digits, a currency or %. The NA of R is a word for a missing value.
"""

from collections.abc import Mapping

import polars as pl

from dlrm.config.schema import DecimalMark
from dlrm.data.inspect.sample.file_sample import HANDFUL_SHARE, MOST, format_entry, pick_handful, replace_nan
from dlrm.data.inspect.sample.time_forms import Times, find_times
from dlrm.data.raw.values.convert import make_number_pattern, parse_number_texts, parse_numbers, read_booleans

MISSING_WORDS = frozenset(
    ("na", "n/a", "#n/a", "n.a.", "nan", "null", "(null)", "nil", "none", "missing", "unknown", "?", "-", "--", ".")
) | {r"\n", "nat", "0000-00-00", "0000-00-00 00:00:00"}
"""Words that are known to stand for a missing value, in small letters."""
_NUM_LABELS = 2
_WHOLE_NUMBER = r"^\s*-?(0|[1-9][0-9]*)\s*$"
_PHONE_NUMBER = r"^\s*\+[0-9]{7,}\s*$"


def convert_texts(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Convert columns of text. Return the texts without words for missing values, the numbers or texts that they are,
    and these words."""
    missing = find_missing_words(rows)
    rows = rows.with_columns(pl.all().replace(dict.fromkeys(missing)))
    return rows, replace_nan(rows.select(convert_column(rows[name]) for name in rows.columns)), missing


def convert_column(texts: pl.Series) -> pl.Series:
    """Convert texts to integers, numbers or booleans if all of them are; texts stay otherwise. Booleans beside 1 and 0
    are these."""
    present = texts.drop_nulls()
    if not len(present):
        return texts
    if present.str.contains(_WHOLE_NUMBER).all():
        # Beyond 64 bits, numbers name something: as floats, neighbours would be the same.
        read = (parse_numbers(texts, kind) for kind in (pl.Int64(), pl.UInt64()))
        return next((integers for integers in read if integers.null_count() == texts.null_count()), texts)
    numbers = parse_numbers(texts, pl.Float64())
    if numbers.null_count() == texts.null_count():
        # A number with leading zeros, such as 007, is a name, and so are those of phones.
        is_name = present.str.contains(r"^\s*-?0[0-9]").any() or present.str.contains(_PHONE_NUMBER).all()
        return texts if is_name or has_points_between_thousands(present) else numbers
    has_numbers = numbers.null_count() < len(texts)
    if has_numbers or not read_booleans(present.head(1)).has_nulls():
        flags = numbers.fill_null(read_booleans(texts))
        if flags.null_count() == texts.null_count() and flags.drop_nulls().is_in([0.0, 1.0]).all():
            return flags.cast(pl.Int64 if has_numbers else pl.Boolean)
    return texts


def name_type(kind: pl.DataType) -> str:
    """Name the type of a column of text files."""
    if kind == pl.Boolean:
        return "bool"
    return "integer" if kind.is_integer() else "number" if kind == pl.Float64 else "text"


def find_missing_words(rows: pl.DataFrame) -> list[str]:
    """Find the texts that stand for missing values, in the order of the columns.

    rows: columns of text. Words such as NA are no values of a column if all its other texts are numbers or times: a
    column of words may have a real one that looks like them. A word stays a value everywhere if it is one of the two
    values of some column, which may be the label.
    """
    found: dict[str, None] = {}
    labels: set[str] = set()
    for column in rows:
        distinct = column.drop_nulls().unique(maintain_order=True)
        if len(distinct) == _NUM_LABELS:
            labels |= set(distinct)
            continue
        is_word = distinct.str.strip_chars().str.to_lowercase().is_in(MISSING_WORDS)
        if is_word.any() and _are_numbers_or_times(distinct.filter(~is_word)):
            found.update(dict.fromkeys(distinct.filter(is_word).to_list()))
    return [word for word in found if word not in labels]


def _are_numbers_or_times(texts: pl.Series) -> bool:
    if not len(texts):
        return False
    if not texts.str.strip_chars().cast(pl.Float64, strict=False).has_nulls():
        return True
    mark, _ = find_decimal_mark(texts, None)
    return mark is not None or isinstance(find_times(texts), Times)


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
