"""Conversion of columns of text to numbers, and the words that stand for missing values there, such as the NA of R."""

import polars as pl

from dlrm.data.inspect.sample.file_sample import replace_nan
from dlrm.data.inspect.sample.number_forms import find_decimal_mark, has_points_between_thousands
from dlrm.data.inspect.sample.time_forms import Times, find_times
from dlrm.data.raw.values.convert import parse_numbers, read_booleans

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
