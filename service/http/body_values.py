"""Checks of what request bodies contain, whatever format they are written in."""

from collections.abc import Callable, Iterator
from typing import Any, cast

from dlrm.config import FieldError
from service.http.problems import ProblemError

MAX_DEPTH = 64
"""Largest number of objects and arrays inside each other."""
MAX_ITEMS = 20_000
"""Largest number of values and names: each takes far more memory than its two or three bytes in the body."""

DescribeFault = Callable[[Any], tuple[str, str] | None]
"""Function that returns what is wrong with a value that is no object and no array, and what would be valid."""


def find_faults(value: Any, describe: DescribeFault, path: tuple[str, ...] = ()) -> Iterator[FieldError]:
    """Yield a fault for every value at fault, and for every name that cannot be stored.

    Raises RecursionError where `value` is nested too deeply.
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


def describe_depth() -> str:
    """Say that a body is nested too deeply, and how deeply it may be."""
    return f"the body is nested too deeply (valid: up to {MAX_DEPTH} levels)"


def too_many_items() -> ProblemError:
    """Make the problem of a body with more values and names than MAX_ITEMS."""
    detail = f"the body has more than {MAX_ITEMS:,} values and names"
    return ProblemError("too-large", 413, "The body is too large", detail)


def _describe_unstorable(text: str) -> str | None:
    if "\0" in text:
        return "contains the character NUL"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "contains half a character (a surrogate without the other one)"
    return None


def _check_depth(path: tuple[str, ...]) -> None:
    if len(path) >= MAX_DEPTH:
        raise RecursionError
