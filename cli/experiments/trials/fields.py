"""Fields of a job document that a trial sets, by dotted path."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from cli.local.set_option import Setting, apply_settings
from dlrm.config import JobSpec

Settings = Mapping[str, Any]
"""Values of fields of the job document, by dotted path."""


def set_fields(document: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the document with the fields of `settings` set."""
    return apply_settings(
        document, [Setting(field, tuple(field.split(".")), value) for field, value in settings.items()]
    )


def get_field(document: Mapping[str, Any], field: str) -> Any:
    """Return what the document states for a field; None if it leaves it out."""
    node: Any = document
    for part in field.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return node  # pyright: ignore[reportUnknownVariableType]


def shorten_fields(fields: Iterable[str]) -> dict[str, str]:
    """Return a name for each field: the last part of its path, or the whole path where others end alike."""
    last = {field: field.rpartition(".")[2] for field in fields}
    counts = Counter(last.values())
    return {field: name if counts[name] == 1 else field for field, name in last.items()}


def set_absolute_paths(document: Mapping[str, Any], spec: JobSpec) -> dict[str, Any]:
    """Return the document with the paths of `spec`, the same one with absolute paths."""
    paths: dict[str, Any] = {
        "data.train": spec.data.train,
        "data.eval": spec.data.eval,
        "run.warm_start.from": spec.run.warm_start and spec.run.warm_start.source,
    }
    return set_fields(document, {field: path for field, path in paths.items() if path})
