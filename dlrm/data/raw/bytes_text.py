"""Text of columns of bytes: most programs write UTF-8 there, others write hashes and UUIDs."""

import numpy as np
import polars as pl
import pyarrow as pa

_UUID_DIGITS = "^(.{8})(.{4})(.{4})(.{4})(.{12})$"


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of this type are bytes that are not declared to be text."""
    types = pa.types
    kinds = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return any(is_of(kind) for is_of in kinds)


def convert_bytes(values: pa.Array) -> pa.Array:
    """Convert bytes [n] to strings: UTF-8 as it stands, others as hexadecimal digits, 16 bytes as those of a UUID.

    Bytes of a fixed size are text only if they are printable ASCII: random ones may be UTF-8 by chance.
    """
    texts = _find_printable(values) if pa.types.is_fixed_size_binary(values.type) else decode_utf8(values)
    if texts.null_count == values.null_count:
        return texts
    digits = pl.Series(values.cast(pa.large_binary()), dtype=pl.Binary).bin.encode("hex")
    digits = digits.str.replace(_UUID_DIGITS, "$1-$2-$3-$4-$5")
    return pl.Series(texts).fill_null(digits).to_arrow(compat_level=pl.CompatLevel.oldest())


def decode_utf8(values: pa.Array) -> pa.Array:
    """Decode bytes or strings [n]; null where a value is not UTF-8."""
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
