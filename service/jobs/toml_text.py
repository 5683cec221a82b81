"""Job documents and their values as TOML."""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard, cast

_BARE_NAME = re.compile(r"[A-Za-z0-9_-]+")


def format_value(value: Any) -> str:
    """Format a JSON value in one line. It has no null, which TOML lacks: false turns a section off."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return f"{{ {', '.join(_format_field(*field) for field in fields.items())} }}" if fields else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, cast('list[Any]', value)))}]"
    # Of the characters that TOML forbids in a string JSON escapes all but one.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def format_document(document: Mapping[str, Any]) -> str:
    """Format a document with a table for each section, and a line for each entry of a list of tables."""
    return "\n".join(_format_table(document, "")).lstrip("\n") + "\n"


def _format_table(fields: Mapping[str, Any], path: str) -> list[str]:
    """Format a table: its own values, then the tables in it, each after an empty line."""
    inner = {name: value for name, value in fields.items() if _is_table(value) and (not path or _has_rows(value))}
    own = {name: value for name, value in fields.items() if name not in inner}
    lines = ["", f"[{path}]"] if path and (own or not inner) else []
    lines += [_format_field(name, value, is_long=_is_rows(value)) for name, value in own.items()]
    for name, value in inner.items():
        lines += _format_table(value, f"{path}.{_format_name(name)}" if path else _format_name(name))
    return lines


def _format_field(name: str, value: Any, *, is_long: bool = False) -> str:
    """Format a field in one line; with a line for each entry of its list if it is a long one."""
    text = "[\n" + "".join(f"    {format_value(row)},\n" for row in value) + "]" if is_long else format_value(value)
    return f"{_format_name(name)} = {text}"


def _format_name(name: str) -> str:
    return name if _BARE_NAME.fullmatch(name) else format_value(name)


def _is_table(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and any(map(_is_table, cast("list[Any]", value)))


def _has_rows(fields: Mapping[str, Any]) -> bool:
    return any(map(_is_rows, fields.values()))
