"""Text of request bodies, JSON or TOML: read so that it has one meaning only, and nothing that cannot be stored."""

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import date, time
from typing import Any, cast

from dlrm.config import DocumentTextError, FieldError, decode_document, describe_odd_character, find_line
from service.http.limits import Turns
from service.http.problems import ProblemError, invalid_request
from service.http.request_body import TOML, get_media_type

MAX_DEPTH = 64
"""Largest number of objects and arrays inside each other."""
TOO_DEEP = f"the body is nested too deeply (valid: up to {MAX_DEPTH} levels)"
MAX_ITEMS = 20_000
"""Largest number of values and names: each takes far more memory than its two or three bytes in the body."""

DescribeFault = Callable[[Any], tuple[str, str] | None]
"""Function that returns what is wrong with a value other than an object or array, and what would be valid."""
TOML_BODIES = Turns("TOML to be read", 1, share=1, max_waiting=200, waiting_share=50)
"""Thread that parses TOML; a body of the largest size takes some tenths of a second."""

_SEPARATORS = (b",", b":", b"[", b"{")
"""Separators: one stands before every value and name but the first one."""
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


def parse_json(body: bytes) -> Any:
    """Parse the JSON of a body.

    Raises ProblemError if it is no JSON, has a name twice in one object, is nested too deeply, has too many values,
    or contains a number or text that cannot be stored.
    """
    try:
        text = decode_document(body)
        _check_number_of_items(text.encode())
        value = json.loads(
            text,
            object_pairs_hook=_make_object,
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
        )
        faults = list(find_faults(value, describe_text_fault))
    except DocumentTextError as error:
        raise ProblemError("malformed-json", f"the body is {error}") from None
    except json.JSONDecodeError as error:
        raise ProblemError("malformed-json", f"the body is not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise ProblemError("malformed-json", TOO_DEEP) from None
    except ValueError as error:
        raise ProblemError("malformed-json", f"the body cannot be read as JSON: {error}") from None
    if faults:
        raise invalid_request(faults)
    return value


def _check_number_of_items(body: bytes) -> None:
    """Raise ProblemError if there are too many values and names; before any of them takes memory.

    Works on whole bodies at a time, since a search for one after the other would take longer than parsing.
    """
    if _count_separators(body) < MAX_ITEMS:
        return
    # Of what is within texts nothing separates.
    parts = body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"', 2 * MAX_ITEMS)
    if len(parts) > 2 * MAX_ITEMS or _count_separators(b"".join(parts[::2])) >= MAX_ITEMS:
        raise too_many_items()


def _count_separators(text: bytes) -> int:
    return sum(text.count(separator) for separator in _SEPARATORS)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names: set[str] = set()
        twice = next(name for name, _ in pairs if name in names or names.add(name))
        raise ValueError(f"{twice!r} occurs twice in one object")
    return made


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON (valid: a finite number, or null)")


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large for a number of 64 bits")
    return number


def has_toml(headers: Mapping[str, str]) -> bool:
    """Whether a request's body is TOML, by its headers."""
    return get_media_type(headers.get("content-type", "")) == TOML


def parse_toml(body: bytes) -> dict[str, Any]:
    """Parse the TOML of a body.

    Raises ProblemError if it is no TOML, is nested too deeply, has too many values, or contains a value that JSON
    could not have: a date or time, a number that is not finite or has more than 64 bits, or unstorable text.
    """
    try:
        text = decode_document(body)
    except DocumentTextError as error:
        raise ProblemError("malformed-toml", f"the document is {error}") from None
    _check_size(text.encode())
    try:
        value = tomllib.loads(text)
        faults = list(find_faults(value, _describe_fault))
    except tomllib.TOMLDecodeError as error:
        odd = describe_odd_character(text, find_line(error))
        raise ProblemError(
            "malformed-toml", "; ".join(filter(None, (f"the document is not TOML: {error}", odd)))
        ) from None
    except RecursionError:
        raise ProblemError("malformed-toml", TOO_DEEP) from None
    except ValueError as error:
        raise ProblemError("malformed-toml", f"the document cannot be read as TOML: {error}") from None
    if faults:
        raise invalid_request(faults)
    return value


def _check_size(body: bytes) -> None:
    """Raise ProblemError if there are too many values and names, or names of too many parts; before they are parsed.

    Many parts in one name would take the parser the square of their number.
    """
    skeleton = _TEXT_OR_COMMENT.sub(b"", body)
    if sum(weight * skeleton.count(separator) for separator, weight in _WEIGHTS.items()) >= MAX_ITEMS:
        raise too_many_items()
    if any(part.count(b".") >= MAX_DEPTH for part in _ENDS_OF_KEYS.split(skeleton)):
        raise ProblemError("malformed-toml", TOO_DEEP)


def _describe_fault(value: Any) -> tuple[str, str] | None:
    """Return what is wrong with a value of TOML, and what would be valid; None if nothing is."""
    if isinstance(value, date | time):
        return f"{value} is a date or a time, which no field has", f'text in quotes, such as "{value}"'
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a number that can be stored", "a finite number of 64 bits"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "is too large for a whole number of 64 bits", "a number from -2^63 to 2^63 - 1"
    return describe_text_fault(value)


def find_faults(value: Any, describe: DescribeFault, path: tuple[str, ...] = ()) -> Iterator[FieldError]:
    """Yield a fault for every value at fault, and for every name that cannot be stored.

    Raises RecursionError if `value` is nested too deeply.
    """
    if isinstance(value, dict):
        _check_depth(path)
        for name, item in cast("dict[str, Any]", value).items():
            if reason := _describe_unstorable(name):
                yield FieldError(".".join(path), f"has a name that {reason}", "another name")
            yield from find_faults(item, describe, (*path, name))
    elif isinstance(value, list):
        _check_depth(path)
        for number, item in enumerate(cast("list[Any]", value)):
            yield from find_faults(item, describe, (*path, str(number)))
    elif fault := describe(value):
        yield FieldError(".".join(path), *fault)


def describe_text_fault(value: Any) -> tuple[str, str] | None:
    """Return why a database cannot store a text, and what would be valid; None if it can, or it is no text."""
    reason = _describe_unstorable(value) if isinstance(value, str) else None
    return (reason, "other text") if reason else None


def too_many_items() -> ProblemError:
    """Make the problem of a body with more values and names than MAX_ITEMS."""
    return ProblemError("too-large", f"the body has more than {MAX_ITEMS:,} values and names")


def _describe_unstorable(text: str) -> str | None:
    if "\0" in text:
        return "contains the character NUL"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "contains half a character (a surrogate without the other one)"
    return None


def _check_depth(path: tuple[str, ...]) -> None:
    if len(path) >= MAX_DEPTH:
        raise RecursionError
