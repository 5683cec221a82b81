"""The job document of the best trial: the user's document with changed fields, and comments on what they replace."""

import json
import tomllib
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, cast

import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Item, Table

from cli.experiments.trials.fields import Settings, is_open, set_fields
from cli.local.documents import is_toml, read_text
from dlrm.config import BATCH_FIELD


def format_best_document(
    source: str | None, document: Mapping[str, Any], settings: Settings, untuned: Settings, header: Sequence[str]
) -> str:
    """Return the document as TOML.

    source: text of the user's document, whose comments stay; None if it is not TOML. document: the same document, with
    what else should be in it. settings: values of the best trial. untuned: values without tuning; fields with the same
    value in both stay as the document has them, except for the batch that a preset would choose. header: lines of the
    comment at the beginning.
    """
    changed = {field: value for field, value in settings.items() if value != untuned.get(field)}
    is_batch_open = document.get("preset") is not None and is_open(document, BATCH_FIELD)
    if is_batch_open and BATCH_FIELD in settings:
        # By the preset's rule the rows that the trials held out to choose by would make the batch another one.
        changed[BATCH_FIELD] = settings[BATCH_FIELD]
    target = _remove_nulls(set_fields(document, changed))
    comments = {field: _describe_change(field, settings, untuned, document) for field in changed}
    try:
        result = tomlkit.parse(source or "")
        _update(result, target)
        for field, text in comments.items():
            _comment(result, field, text)
        edited = tomlkit.dumps(result).lstrip("\n")
    # The library cannot edit every layout of a document.
    except (KeyError, IndexError, ValueError, TOMLKitError):
        edited = ""
    comment = "".join(f"# {line}\n" for line in header) + "\n"
    # A section that is added may take in what follows it, if the document has dotted names.
    if _has_content(edited, target):
        return comment + edited
    changes = "".join(f"# {field}: {text}\n" for field, text in comments.items())
    return comment + changes + "\n" + tomlkit.dumps(target)


def read_source(path: Path) -> str | None:
    """Return the text of a job document; None if it is not TOML."""
    text = read_text(path)
    return text if is_toml(path, text) else None


def _remove_nulls(node: Any) -> Any:
    """Return a document without nulls, which TOML lacks. A null section becomes false; a field has its default."""
    if isinstance(node, dict):
        fields = cast("dict[str, Any]", node)
        off = {name: False for name in ("moments", "variance_reduction") if name in fields and fields[name] is None}
        return {name: _remove_nulls(value) for name, value in fields.items() if value is not None} | off
    if isinstance(node, list):
        return [_remove_nulls(value) for value in cast("list[Any]", node)]
    return node


def _describe_change(field: str, settings: Settings, untuned: Settings, document: Mapping[str, Any]) -> str:
    """Describe a field of the document for the comment beside it."""
    if settings[field] == untuned.get(field):
        return "that of the trials: the preset would choose it by more rows"
    stated = "" if is_open(document, field) else ", as the document said"
    return f"tuned; untuned: {json.dumps(untuned.get(field))}{stated}"


def _has_content(text: str, target: Mapping[str, Any]) -> bool:
    """Whether a document as text has the content of `target`."""
    try:
        return tomllib.loads(text) == target
    except tomllib.TOMLDecodeError:
        return False


def _update(table: MutableMapping[str, Any], target: Mapping[str, Any]) -> None:
    """Set what differs from `target`, and remove what it lacks; all else keeps its place and its comments."""
    for name in [name for name in table if name not in target]:
        del table[name]
    for name, value in target.items():
        old = table.get(name)
        if isinstance(value, dict) and isinstance(old, MutableMapping):
            _update(cast("MutableMapping[str, Any]", old), cast("dict[str, Any]", value))
        elif old is None or _unwrap(old) != value:
            table[name] = value


def _unwrap(item: Any) -> Any:
    return item.unwrap() if isinstance(item, Item | Container) else item


def _comment(result: Container, field: str, text: str) -> None:
    """Write a comment beside a field, or on the line of its inline table, which has no room for one inside."""
    section, name = field.split(".")
    table = result[section]
    if isinstance(table, InlineTable):
        earlier = table.trivia.comment.removeprefix("# ")
        table.comment("; ".join(filter(None, [earlier, f"{name} {text}"])))
    elif isinstance(table, Table):
        item = table[name]
        if isinstance(item, Item):
            item.comment(text)
