"""TOML of request bodies, read as strictly as JSON is."""

import math
import re
import tomllib
from collections.abc import Mapping
from datetime import date, time
from typing import Any

from dlrm.config import DocumentTextError, decode_document, describe_odd_character, find_line
from service.http.body_values import (
    MAX_DEPTH,
    MAX_ITEMS,
    describe_depth,
    describe_text_fault,
    find_faults,
    too_many_items,
)
from service.http.problems import ProblemError, invalid_request
from service.http.request_body import TOML, get_media_type
from service.http.turns import Turns

TOML_BODIES = Turns("TOML to be read", 1, share=1, max_waiting=200, waiting_share=50)
"""Thread that parses TOML, which takes some tenths of a second for a body of the largest size."""

# Possessive, since bodies are long; what is not closed ends with the body or its line, so that nothing is read twice.
_TEXT_OR_COMMENT = re.compile(
    rb"""
    \"{3} (?: [^"\\]++ | \\. | "(?!"") )*+ (?: "{3,5} )?
    | '{3} (?: [^']++ | '(?!'') )*+ (?: '{3,5} )?
    | " (?: [^"\\\n]++ | \\. )*+ "?
    | ' [^'\n]*+ '?
    | \# [^\n]*+
    """,
    re.VERBOSE | re.DOTALL,
)
_WEIGHTS = {b"=": 2, b",": 1, b"[": 1, b"{": 1, b".": 1}
"""Numbers of values and names that each separator stands beside at most."""
_ENDS_OF_KEYS = re.compile(rb"[=,\[\]{}\n]+")


def has_toml(headers: Mapping[str, str]) -> bool:
    """Whether a request's body is TOML, by its headers."""
    return get_media_type(headers.get("content-type", "")) == TOML


def parse_toml(body: bytes) -> dict[str, Any]:
    """Parse the TOML of a body.

    Raises ProblemError if it is no TOML, is nested too deeply, has too many values, or contains a value that JSON
    could not have: a date or time, a number that is not finite or has more than 64 bits, text that cannot be stored.
    """
    try:
        text = decode_document(body)
    except DocumentTextError as error:
        raise malformed_toml(f"the document is {error}") from None
    _check_size(text.encode())
    try:
        value = tomllib.loads(text)
        faults = list(find_faults(value, _describe_fault))
    except tomllib.TOMLDecodeError as error:
        odd = describe_odd_character(text, find_line(error))
        raise malformed_toml("; ".join(filter(None, (f"the document is not TOML: {error}", odd)))) from None
    except RecursionError:
        raise malformed_toml(describe_depth()) from None
    except ValueError as error:
        raise malformed_toml(f"the document cannot be read as TOML: {error}") from None
    if faults:
        raise invalid_request(faults)
    return value


def malformed_toml(detail: str) -> ProblemError:
    return ProblemError("malformed-toml", 400, "The document cannot be read as TOML", detail)


def _check_size(body: bytes) -> None:
    """Raise ProblemError if there are too many values and names, or names of too many parts; before they are parsed.

    Many parts in one name would take the parser the square of their number.
    """
    skeleton = _TEXT_OR_COMMENT.sub(b"", body)
    if sum(weight * skeleton.count(separator) for separator, weight in _WEIGHTS.items()) >= MAX_ITEMS:
        raise too_many_items()
    if any(part.count(b".") >= MAX_DEPTH for part in _ENDS_OF_KEYS.split(skeleton)):
        raise malformed_toml(describe_depth())


def _describe_fault(value: Any) -> tuple[str, str] | None:
    """Return what is wrong with a value of TOML, and what would be valid; None if nothing is."""
    if isinstance(value, date | time):
        return f"{value} is a date or a time, which no field has", f'text in quotes, such as "{value}"'
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a number that can be stored", "a finite number of 64 bits"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "is too large for a whole number of 64 bits", "a number from -2^63 to 2^63 - 1"
    return describe_text_fault(value)
