"""Conversion of columns to strings and to numbers, as programs write them and as people and spreadsheets do.

Most programs write UTF-8 in columns of bytes, others write hashes and UUIDs. People write numbers with a decimal comma,
groups of digits, a currency or %.
"""

import re

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.config.schema import DecimalMark
from dlrm.data.raw.block import format_value

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


_SPACE = r"[ \u00a0\u2009\u202f]"
_SIGN = r"[-\u2212\u2013+]"
_CODES = (
    "USD|EUR|GBP|JPY|CNY|RMB|INR|CHF|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|RON|BGN|TRY|RUB|UAH|BRL|MXN|ARS|CLP|COP|PEN"
    "|ZAR|NGN|KES|EGP|ILS|AED|SAR|THB|IDR|MYR|SGD|HKD|TWD|KRW|VND|PHP|PKR|BDT"
)
_WORDS = r"Rs\.?|Fr\.?|Ft|kr\.?|lei|zł|Kč|TL|руб\.?|грн\.?|元|円|원"  # noqa: RUF001, Cyrillic letters
_CURRENCY = rf"(?:[A-Z]{{0,3}}\p{{Sc}}|{_CODES}|{_WORDS})"
_EXAMPLES: dict[DecimalMark, str] = {".": "1,234.50, -12.5 or $12.50", ",": "1.234,50, -12,5 or 12,50 €"}


def make_number_pattern(mark: DecimalMark) -> str:
    """Return the regular expression, in Rust's syntax, of numbers with this decimal mark.

    Its groups: open and close (parentheses), sign, inner_sign and last_sign, currency (before the number), whole (with
    what separates its groups of digits), fraction, exponent and unit (after the number: a currency or %).
    """
    other = re.escape("," if mark == "." else ".")
    grouped = "|".join(f"[1-9][0-9]{{0,2}}(?:{between}[0-9]{{3}})+" for between in (other, _SPACE, "['\u2019]", "_"))
    # In India groups before the last one have two digits.
    whole = f"(?P<whole>{grouped}|[1-9][0-9]?(?:{other}[0-9]{{2}})+{other}[0-9]{{3}}|[0-9]+)"
    number = rf"{whole}?(?:{re.escape(mark)}(?P<fraction>[0-9]*))?(?P<exponent>[eE][+-]?[0-9]+)?"
    before = rf"(?P<open>\()?\s*(?P<sign>{_SIGN})?\s*(?P<currency>{_CURRENCY})?\s*(?P<inner_sign>{_SIGN})?"
    after = rf"(?P<unit>%|{_CURRENCY})?\s*(?P<last_sign>[-\u2212])?\s*(?P<close>\))?"
    return rf"^\s*{before}\s*{number}\s*{after}\s*$"


def parse_number_texts(texts: pl.Series, mark: DecimalMark) -> pl.Series:
    """Parse texts [n] to Float64; null if a text is missing or no number."""
    groups = texts.str.extract_groups(make_number_pattern(mark)).struct
    whole, fraction = groups.field("whole").str.replace_all("[^0-9]", "").fill_null(""), groups.field("fraction")
    digits = whole + "." + fraction.fill_null("") + groups.field("exponent").fill_null("")
    numbers = digits.cast(pl.Float64, strict=False)
    is_negative = groups.field("open").is_not_null()
    is_whole = is_negative == groups.field("close").is_not_null()
    for name in ("sign", "inner_sign", "last_sign"):
        is_negative |= (groups.field(name) != "+").fill_null(False)
    is_grouped = groups.field("whole").str.contains("[^0-9]").fill_null(False)
    numbers = numbers.set(~is_whole | (is_grouped & groups.field("exponent").is_not_null()), None)
    return numbers.zip_with(~is_negative, -numbers)


def convert_number_texts(values: pa.Array, mark: DecimalMark) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return numbers [n], NaN where missing or no number, and a mask [n] of present texts that are no numbers.

    values: texts [n], or a dictionary of them. Blank texts, and NaN, are missing.
    """
    found = convert_to_strings(values)
    texts = pl.Series(found.dictionary_decode() if pa.types.is_dictionary(found.type) else found, dtype=pl.String)
    numbers = parse_number_texts(texts, mark)
    is_wrong = numbers.is_null().to_numpy() & values.is_valid().to_numpy(zero_copy_only=False)
    if is_wrong.any():
        is_wrong &= ~texts.str.strip_chars().str.to_lowercase().is_in(["", "nan"]).fill_null(False).to_numpy()
    return numbers.to_numpy(), is_wrong


def explain_not_number(value: pa.Scalar, mark: DecimalMark) -> tuple[str, str]:
    """Return the message and the valid values for a text that is no number, or a number beyond float32."""
    message = f"{format_value(value.as_py())} is not a number with the decimal mark {mark!r}, or is beyond float32"
    return message, f"numbers such as {_EXAMPLES[mark]}; a missing value is blank or null"
