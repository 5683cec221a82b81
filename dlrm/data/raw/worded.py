"""Text columns of a model trained on CSV in rows of other formats, where words for missing values may stand too."""

import numpy as np
import polars as pl
import pyarrow as pa

from dlrm.config import CategoricalColumn
from dlrm.data.raw.convert import convert_to_strings


class WordedColumn(CategoricalColumn):
    """A column of one text per row, in which some texts stand for a missing value, as in the CSV of the training."""

    missing_words: list[str]
    """Texts that stand for a missing value, the blank one included; compared as they stand."""


def blank_missing_words(values: pa.Array, words: list[str]) -> pa.Array:
    """Replace `words` among texts [n], or a dictionary of texts, by null; text that is not UTF-8 stays."""
    texts = convert_to_strings(values)
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    is_word = pl.Series(texts, dtype=pl.String).is_in(words).fill_null(False).to_numpy()
    return values.take(pa.array(np.arange(len(values)), mask=is_word)) if is_word.any() else values
