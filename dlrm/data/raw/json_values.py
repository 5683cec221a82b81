"""Values of JSON objects as text, read line by line: exact, and slower than Polars."""

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

VALID_LINE = 'one JSON object per line, such as {"label": 1, "site": "a"}'


class JsonLineError(ValueError):
    """Fault of a line of JSON: field at fault, None for the whole line; message; what would be valid."""

    def __init__(self, field: str | None, message: str, valid: str) -> None:
        super().__init__(message)
        self.field, self.message, self.valid = field, message, valid


def parse_object(line: bytes, parse_integer: Callable[[str], Any] = str) -> dict[str, Any]:
    """Parse a line to an object. NaN is null; of two values of one key, the first counts. Raises JsonLineError.

    parse_integer: reads the digits of an integer; by default numbers stay text: see `format_float`.
    """
    try:
        found = json.loads(
            line.decode(),
            parse_int=parse_integer,
            parse_float=format_float if parse_integer is str else float,
            parse_constant=lambda word: None if word == "NaN" else word,
            object_pairs_hook=_build_object,
        )
    except UnicodeDecodeError:
        raise JsonLineError(None, "not UTF-8", "UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        # The message of the JSON reader quotes no text of the line.
        reason = f": {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise JsonLineError(None, f"is not JSON{reason}" if line.strip() else "the line is blank", VALID_LINE) from None
    if not isinstance(found, dict):
        raise JsonLineError(None, "is not a JSON object", VALID_LINE)
    return found


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    return built if len(built) == len(pairs) else dict(reversed(pairs))


def format_float(text: str) -> str:
    """Return a number as Polars writes it: without an exponent, and without `.0`; digits alone as they are."""
    if text.lstrip("-").isdecimal():
        return text
    number = float(text)
    return text if number in (float("inf"), -float("inf")) else f"{Decimal(repr(number)):f}".removesuffix(".0")


def read_texts(found: Mapping[str, Any], name: str, *, is_list: bool) -> Any:
    """Return the value of a column as text, or as a list of texts; None if it is missing. Raises JsonLineError.

    name: a key, or the keys of nested objects with dots between them.
    """
    value = find_value(found, name)
    if value is None:
        return None
    if is_list:
        if not isinstance(value, list):
            valid = "a list such as [1, 2]; or in the schema multi_hot: false, or no length"
            raise JsonLineError(name, "is not a list", valid)
        return [None if item is None else _to_text(item, name) for item in value]
    return _to_text(value, name)


def find_value(found: Mapping[str, Any], name: str) -> Any:
    """Return the value of a key, or of the keys of nested objects with dots between them; None if it is missing."""
    value, keys = found.get(name), name.split(".")
    if len(keys) == 1:
        return value
    nested: Any = found
    for key in keys:
        if nested is not None and not isinstance(nested, dict):
            if name in found:
                return value
            raise JsonLineError(name, "stands in something else than an object", _show_nested(keys))
        nested = None if nested is None else nested.get(key)
    if value is not None and nested is not None:
        raise JsonLineError(name, "is the name of a key and of a key in an object", "one of them")
    return nested if value is None else value


def _show_nested(keys: Sequence[str]) -> str:
    return "an object such as " + "".join(f'{{"{key}": ' for key in keys) + "1" + "}" * len(keys)


def _to_text(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        kind = "a list" if isinstance(value, list) else "an object"
        valid = "a text, a number, true, false or null"
        raise JsonLineError(
            name, f"is {kind}", valid + ("; or in the schema multi_hot: true, or length" if kind == "a list" else "")
        )
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError:
        raise JsonLineError(name, "holds half of a surrogate pair", "UTF-8 text") from None
    return value
