"""JSON of request bodies, read so that it has one meaning only."""

import json
import math
from typing import Any

from dlrm.config import DocumentTextError, decode_document
from service.http.body_values import MAX_ITEMS, describe_depth, describe_text_fault, find_faults, too_many_items
from service.http.problems import ProblemError, invalid_request

_SEPARATORS = (b",", b":", b"[", b"{")
"""Separators, one of which stands before every value and name but the first one."""


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
        raise malformed_json(f"the body is {error}") from None
    except json.JSONDecodeError as error:
        raise malformed_json(f"the body is not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise malformed_json(describe_depth()) from None
    except ValueError as error:
        raise malformed_json(f"the body cannot be read as JSON: {error}") from None
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


def malformed_json(detail: str) -> ProblemError:
    return ProblemError("malformed-json", 400, "The body cannot be read as JSON", detail)


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
