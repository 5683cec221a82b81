"""Settings `KEY=VALUE` of fields of a job document, as the option `--set` takes them."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, cast

from cli.local.errors import BadInputError
from dlrm.config import list_scaling

_VALID = 'KEY=VALUE, such as batch.global_size=4096 or dense_optimizer.name="lamb"'
_QUOTED = ("[", "{", '"', "'")
"""Beginnings of values that are meant as TOML: a list, a table, a string. Other text that is not TOML is a string."""


@dataclass(frozen=True)
class Setting:
    """One field of a job document with its new value."""

    key: str
    """Key as the user wrote it."""
    path: tuple[str, ...]
    """Parts of the key, such as `("batch", "global_size")`."""
    value: Any

    @property
    def field(self) -> str:
        """Dotted path of the field, as errors of the document name it."""
        return ".".join(self.path)


def parse_settings(texts: Sequence[str] | None) -> list[Setting]:
    """Parse the arguments of `--set`. Raises BadInputError if one is not KEY=VALUE."""
    return [_parse_setting(text) for text in texts or ()]


def apply_settings(document: Mapping[str, Any], settings: Sequence[Setting]) -> dict[str, Any]:
    """Return `document` with every setting in it; objects on the way that it lacks are added.

    A learning rate that replaces a preset's is for the same batch, and scales in the same way. Raises BadInputError
    if the path of a key leads through a value that is no object, or beyond the end of a list.
    """
    rates = [setting for setting in settings if setting.path[1:] == ("learning_rate",)]
    scaling = list_scaling(
        _set_all(document, [setting for setting in settings if setting not in rates]),
        [setting.path[0] for setting in rates],
    )
    beside = [Setting(field, tuple(field.split(".")), value) for field, value in scaling.items()]
    return _set_all(document, [*settings, *beside])


def name_source(field: str, settings: Sequence[Setting], source: str) -> str:
    """Return what an error about `field` should name as its source: `--set` if a setting has set it, or an object
    that it is in, or `--preset`; else `source`."""
    if not is_set(field, settings):
        return source
    return "--preset" if field == "preset" else "--set"


def is_set(field: str, settings: Sequence[Setting]) -> bool:
    """Whether a setting has set `field`, or an object that it is in."""
    return any(field == setting.field or field.startswith(f"{setting.field}.") for setting in settings)


def _parse_setting(text: str) -> Setting:
    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not key:
        raise BadInputError(f"--set {text}: not a field with a value (valid: {_VALID})")
    return Setting(key, _parse_key(key), _parse_value(key, value.strip()))


def _parse_key(key: str) -> tuple[str, ...]:
    """Split a dotted key as TOML does, in which a part such as `"user_*"` may be quoted."""
    valid = f'dotted names, such as batch.global_size; quote a part with other characters: columns."user_*"; {_VALID}'
    if "\n" in key:
        raise BadInputError(f"--set {key!r}: not a key (valid: {valid})")
    try:
        node: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        raise BadInputError(f"--set {key}: not a key (valid: {valid})") from None
    path: list[str] = []
    while isinstance(node, dict):
        [(part, node)] = cast("dict[str, Any]", node).items()
        path.append(part)
    return tuple(path)


def _parse_value(key: str, text: str) -> Any:
    """Parse a TOML value; text that is none, such as a bare word or a path, is a string."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError) as error:
        # Also a number of more digits than Python reads.
        if text.startswith(_QUOTED):
            raise BadInputError(
                f'--set {key}: {text} is not valid TOML: {error} (valid: a number, true, false, "text", [1, 2] or '
                "{ name = 1 }; a bare word is a string)"
            ) from None
        return text
    # More than one entry: a line break in the text began another one.
    if len(document) > 1:
        return text
    value = document["value"]
    # No field of a job takes a date; a name or a directory may look like one.
    return text if isinstance(value, (date, datetime, time)) else value


def _set_all(document: Mapping[str, Any], settings: Sequence[Setting]) -> dict[str, Any]:
    changed: dict[str, Any] = dict(document)
    for setting in settings:
        changed = _set(changed, setting, 0)
    return changed


def _set(node: Any, setting: Setting, depth: int) -> Any:
    """Return a copy of `node`, found at the first `depth` parts of the path, with the setting in it."""
    part, where = setting.path[depth], ".".join(setting.path[:depth])
    is_last = depth == len(setting.path) - 1
    if isinstance(node, list):
        entries = cast("list[Any]", node)
        if not (part.isdecimal() and int(part) < len(entries)):
            count = f"0 to {len(entries) - 1}" if entries else f"{where}=[…], since it is empty"
            raise BadInputError(f"--set {setting.key}: {where} is a list without an entry {part!r} (valid: {count})")
        new = setting.value if is_last else _set(entries[int(part)], setting, depth + 1)
        return [*entries[: int(part)], new, *entries[int(part) + 1 :]]
    # null and false stand for a component that is switched off.
    fields: Any = {} if node is None or node is False else node
    if not isinstance(fields, dict):
        raise BadInputError(
            f"--set {setting.key}: {where} is {fields!r}, which has no field {part!r} (valid: {where}={{ {part} = … }})"
        )
    table = cast("dict[str, Any]", fields)
    return {**table, part: setting.value if is_last else _set(table.get(part), setting, depth + 1)}
