"""Fields of a job document that a trial sets, by dotted path, and their values as words."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from cli.local.errors import BadInputError
from cli.local.set_option import Setting, apply_settings
from dlrm.config import ConfigError, JobSpec, parse_job

Settings = Mapping[str, Any]
"""Values of fields of the job document, by dotted path."""
VALIDATION_FRACTION = 0.1
"""Share of the training rows that choose settings and models, if the document leaves it open."""


def set_fields(document: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the document with the fields of `settings` set."""
    return apply_settings(
        document, [Setting(field, tuple(field.split(".")), value) for field, value in settings.items()]
    )


def parse_trial(document: Mapping[str, Any]) -> JobSpec:
    """Validate the job document of a trial. Raises BadInputError, with a line for each fault."""
    try:
        return parse_job(document)
    except ConfigError as error:
        raise BadInputError(*map(str, error.errors)) from None


def get_field(document: Mapping[str, Any], field: str) -> Any:
    """Return what the document states for a field; None if it leaves it out."""
    node: Any = document
    for part in field.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return node  # pyright: ignore[reportUnknownVariableType]


def is_open(document: Mapping[str, Any], field: str) -> bool:
    """Whether the document leaves the value of a field open."""
    return get_field(document, field) in (None, "auto")


def fix_end(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that keep evaluation rows from ending a run; empty if they would not."""
    return {} if get_field(document, "run.target_auc") is None else {"run.target_auc": 1.0}


def set_absolute_paths(document: Mapping[str, Any], spec: JobSpec) -> dict[str, Any]:
    """Return the document with the paths of `spec`, the same document with absolute paths."""
    paths: dict[str, Any] = {
        "data.train": spec.data.train,
        "data.eval": spec.data.eval,
        "run.warm_start.from": spec.run.warm_start and spec.run.warm_start.source,
    }
    return set_fields(document, {field: path for field, path in paths.items() if path})


def shorten_fields(fields: Iterable[str]) -> dict[str, str]:
    """Return a name for each field: the last part of its path, or the whole path if others end alike."""
    last = {field: field.rpartition(".")[2] for field in fields}
    counts = Counter(last.values())
    return {field: name if counts[name] == 1 else field for field, name in last.items()}


def format_value(value: Any) -> str:
    """Format a value of a field briefly; a date or time of TOML, which no field has, as it is written."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def format_cell(method: str, compared: Settings) -> str:
    """Format a method and the compared values, such as "adam, 4096"."""
    return ", ".join([method, *map(format_value, compared.values())])


def format_settings(settings: Settings) -> str:
    """Format settings by the last names of their fields, or by longer ones if these are the same."""
    return ", ".join(f"{name} {format_value(settings[field])}" for field, name in shorten_fields(settings).items())


def list_edges(grid: Mapping[str, Iterable[Any]], settings: Settings) -> list[str]:
    """List the fields whose value is the lowest or the highest number in `grid`, each behind "lowest" or "highest"."""
    edges: list[str] = []
    for field, value in settings.items():
        tried = list(grid[field])
        numbers = [one for one in tried if isinstance(one, int | float) and not isinstance(one, bool)]
        if len(numbers) < 2 or len(numbers) < len(tried):
            continue
        if value in (min(numbers), max(numbers)):
            edges.append(f"{'lowest' if value == min(numbers) else 'highest'} {field}")
    return edges
