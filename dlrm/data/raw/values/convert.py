"""Text of columns of bytes: most programs write UTF-8 there, others write hashes and UUIDs."""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

_UUID_DIGITS = "^(.{8})(.{4})(.{4})(.{4})(.{12})$"


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of this type are bytes that are not declared to be text."""
    types = pa.types
    kinds = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return any(is_of(kind) for is_of in kinds)


def convert_bytes(values: pa.Array) -> pa.Array:
    """Convert bytes [n] to strings: UTF-8 as it stands, others as hexadecimal digits, 16 bytes as a UUID.

    Bytes of a fixed size are text only if they are printable ASCII: random ones may be UTF-8 by chance.
    """
    texts = _find_printable(values) if pa.types.is_fixed_size_binary(values.type) else decode_utf8(values)
    if texts.null_count == values.null_count:
        return texts
    digits = pl.Series(values.cast(pa.large_binary()), dtype=pl.Binary).bin.encode("hex")
    digits = digits.str.replace(_UUID_DIGITS, "$1-$2-$3-$4-$5")
    return pl.Series(texts).fill_null(digits).to_arrow(compat_level=pl.CompatLevel.oldest())


def decode_utf8(values: pa.Array) -> pa.Array:
    """Decode bytes or strings [n]; null if a value is not UTF-8."""
    # Strings of a Parquet file have not been checked to be UTF-8 yet.
    raw = values.cast(pa.large_binary())
    try:
        return raw.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([_decode(value) for value in raw.to_pylist()], type=pa.large_string())


def _decode(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _find_printable(values: pa.Array) -> pa.Array:
    """Return the texts [n] of bytes of a fixed size, null if they are not printable ASCII."""
    width = values.type.byte_width
    letters = np.frombuffer(values.buffers()[1], np.uint8)[: (values.offset + len(values)) * width]
    letters = letters.reshape(values.offset + len(values), width)[values.offset :]
    is_printable = ((letters >= ord(" ")) & (letters <= ord("~"))).all(axis=1)
    places = pa.array(np.arange(len(values)), mask=~is_printable)
    return values.cast(pa.large_binary()).take(places).cast(pa.large_string())


MAX_FLOAT32 = float(np.finfo(np.float32).max)
BOOLEANS = {"true": 1.0, "false": 0.0}


def convert_to_numbers(values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return values [n], NaN where missing or not a number, and a mask [n] of present values that are no numbers.

    values: numbers, booleans, text or nulls, or a dictionary of them. Blank text is missing.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if holds_text(values.type):
        return _convert_texts_to_numbers(values)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers, np.zeros(len(values), dtype=np.bool_)


def _convert_texts_to_numbers(values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    if is_text(values.type):
        read = pl.Series(values).cast(pl.Float64, strict=False)
        if read.null_count() == values.null_count:
            return read.to_numpy(), np.zeros(len(values), dtype=np.bool_)
    texts = pl.Series(convert_to_strings(values), dtype=pl.String)
    read = parse_numbers(texts, pl.Float64())
    read = read.fill_null(read_booleans(texts))
    is_wrong = read.is_null() & (texts != "").fill_null(True)
    return read.to_numpy(), is_wrong.to_numpy() & ~find_missing(values)


def find_extremes(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Find numbers [n] that stand for no value: infinity, those beyond float32, and the limits of 64-bit integers.

    Programs write these where a value is missing, as the smallest int64 is pandas' missing time.
    """
    magnitude = np.abs(numbers)
    is_extreme = magnitude >= 2.0**63
    if is_extreme.any():
        is_extreme = (magnitude >= MAX_FLOAT32) | (magnitude == 2.0**63) | (numbers == 2.0**64)
    return is_extreme


def parse_numbers(texts: pl.Series, kind: pl.DataType) -> pl.Series:
    """Parse texts to numbers of type `kind`, with or without spaces around them; null if a text is no number."""
    read = texts.cast(kind, strict=False)
    # Most files have no such spaces: look for them only where something could not be read.
    return read if read.null_count() == texts.null_count() else texts.str.strip_chars().cast(kind, strict=False)


def read_booleans(texts: pl.Series) -> pl.Series:
    """Read the texts [n] of booleans, in any letters, as 1.0 and 0.0; null if a text is none."""
    words = texts.str.strip_chars().str.to_lowercase()
    return words.replace_strict(BOOLEANS, default=None, return_dtype=pl.Float64)


def convert_to_strings(values: pa.Array) -> pa.Array:
    """Convert to strings or to a dictionary of strings; null if a value is missing or text is not UTF-8.

    values: text, bytes, integers or decimals of scale 0, or a dictionary of them.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(values.indices, convert_to_strings(values.dictionary))
    if is_bytes(kind):
        return convert_bytes(values)
    if pa.types.is_decimal(kind):
        return values.cast(pa.decimal256(76, 0)).cast(pa.large_string())
    return decode_utf8(values) if is_text(kind) else values.cast(pa.large_string())


def find_missing(values: pa.Array) -> NDArray[np.bool_]:
    """Return a mask [n] of nulls."""
    return values.is_null().to_numpy(zero_copy_only=False)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def holds_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text, bytes, which are text mostly, or a dictionary of either."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_text(value) or is_bytes(value)
