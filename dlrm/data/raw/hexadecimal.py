"""Ids of Criteo's logs in tables of other formats: their text is hexadecimal there too."""

import polars as pl
import pyarrow as pa

from dlrm.config import CategoricalColumn
from dlrm.data.raw.bad_rows import shown

_ID = "^[0-9a-fA-F]{1,8}$"
VALID = "1 to 8 of 0-9 a-f, or blank"


class HexadecimalColumn(CategoricalColumn):
    """A column of integers whose text means what it means in Criteo TSV. Integers are what they are."""


def hexadecimal_ids(texts: pa.Array) -> tuple[pl.Series, pl.Series]:
    """32-bit ids [n], null where missing, blank or wrong; and where a text is blank [n].

    texts: strings, or a dictionary of them.
    """
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    series = pl.Series(texts, dtype=pl.String)
    ids = series.set(~series.str.contains(_ID).fill_null(True), None)
    return ids.str.to_integer(base=16, dtype=pl.UInt32), (series == "").fill_null(False)


def why_not_hexadecimal(value: pa.Scalar) -> tuple[str, str]:
    """Message, and what is valid."""
    return f"{shown(value.as_py())} is not a hexadecimal id", VALID
