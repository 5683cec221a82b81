"""Finds the words that stand for missing values in text files, such as the NA of R."""

import polars as pl

from dlrm.data.inspect.number_forms import find_decimal_mark
from dlrm.data.inspect.times import Times, find_times

MISSING_WORDS = frozenset(
    ("na", "n/a", "#n/a", "n.a.", "nan", "null", "(null)", "nil", "none", "missing", "unknown", "?", "-", "--", ".")
) | {r"\n", "nat", "0000-00-00", "0000-00-00 00:00:00"}
"""Words that are known to stand for a missing value, in small letters."""
_NUM_LABELS = 2


def find_missing_words(rows: pl.DataFrame) -> list[str]:
    """Find the texts that stand for missing values, in the order of the columns.

    rows: columns of text. Where all texts of a column are numbers or times but for such words, they are no values of
    it: a column of words may have a real one that looks like them. A word that is one of the two values of some column,
    which may be the label, stays a value everywhere.
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
