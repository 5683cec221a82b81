"""Numbers as people and spreadsheets write them: with a decimal comma, groups of digits, a currency or %."""

import re

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.config.schema import DecimalMark
from dlrm.data.raw.block import format_value
from dlrm.data.raw.values.convert import convert_to_strings

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
