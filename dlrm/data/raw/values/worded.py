"""Columns of a model trained on CSV in rows of other formats: what is missing there is missing here."""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.config import CategoricalColumn
from dlrm.data.raw.values.convert import convert_to_strings


class WordedColumn(CategoricalColumn):
    """A column in which some texts stand for a missing value, and an empty list is one, as in the training's CSV."""

    missing_words: list[str]
    """Texts that stand for a missing value, the blank one included; compared as they stand."""


def blank_empty_lists(lists: pa.Array) -> pa.Array:
    """Replace empty lists among lists [n] by null."""
    return _blank(lists, lists.value_lengths().to_numpy(zero_copy_only=False) == 0)


def blank_missing_words(values: pa.Array, words: list[str]) -> pa.Array:
    """Replace `words` among texts [n], or a dictionary of texts, by null; text that is not UTF-8 stays."""
    return _blank(values, find_words(values, words))


def find_words(values: pa.Array, words: list[str]) -> NDArray[np.bool_]:
    """Find `words` among texts [n], or a dictionary of texts."""
    return _decode(values).is_in(words).fill_null(False).to_numpy()


def blank_missing_parts(values: pa.Array, lengths: NDArray[np.int32], words: list[str]) -> pa.Array:
    """Replace by null what CSV would take for missing in lists: blank texts, and one of `words` that is alone.

    values: texts of all lists, or a dictionary of texts. lengths: [n], the number of texts of each list. A word beside
    others is a value, since CSV compares whole cells with the words.
    """
    texts = _decode(values)
    is_alone = pl.Series(np.repeat(lengths == 1, lengths))
    is_missing = (texts == "") | (is_alone & texts.is_in(words))
    return _blank(values, is_missing.fill_null(False).to_numpy())


def _decode(values: pa.Array) -> pl.Series:
    """Return the texts of an array or a dictionary, null if they are not UTF-8."""
    texts = convert_to_strings(values)
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    return pl.Series(texts, dtype=pl.String)


def _blank(values: pa.Array, is_missing: NDArray[np.bool_]) -> pa.Array:
    """Replace some values [n] by null."""
    return values.take(pa.array(np.arange(len(values)), mask=is_missing)) if is_missing.any() else values
