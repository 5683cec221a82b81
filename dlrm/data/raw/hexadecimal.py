"""Hexadecimal ids of Criteo's logs in files of other formats than Criteo TSV."""

import polars as pl
import pyarrow as pa

from dlrm.config import CategoricalColumn
from dlrm.data.raw.bad_rows import format_value
from dlrm.data.raw.bytes_text import decode_utf8

_ID = "^[0-9a-fA-F]{1,8}$"
VALID = "1 to 8 of 0-9 a-f, or blank"


class HexadecimalColumn(CategoricalColumn):
    """A column of integer ids whose text is hexadecimal, as in Criteo TSV. Values of an integer type stay unchanged."""


def parse_hexadecimal_ids(texts: pa.Array) -> tuple[pl.Series, pl.Series]:
    """Parse 32-bit ids. Return them [n], null where missing, blank or invalid, and a mask [n] of blank texts.

    texts: strings or bytes [n], or a dictionary of them.
    """
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    series = pl.Series(decode_utf8(texts), dtype=pl.String)
    ids = series.set(~series.str.contains(_ID).fill_null(True), None)
    return ids.str.to_integer(base=16, dtype=pl.UInt32), (series == "").fill_null(False)


def explain_not_hexadecimal(value: pa.Scalar) -> tuple[str, str]:
    """Return the message and the valid values for a text that is not a hexadecimal id."""
    return f"{format_value(value.as_py())} is not a hexadecimal id", VALID
