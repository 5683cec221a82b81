"""Changes of a job document: applied to a stored one, and written in TOML."""

import json
from collections.abc import Mapping
from typing import Any, cast

from dlrm.config import JobSpec
from service.jobs.document import parse_document
from service.schemas import AdvisedChange


def make_change(field: str, value: Any) -> AdvisedChange:
    """Make the change of one field, with its line in TOML."""
    return AdvisedChange(field=field, value=value, toml=f"{field} = {_format_toml(value)}")


def _format_toml(value: Any) -> str:
    """Format a JSON value in TOML. There is no null: a section is turned off with false."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return f"{{{', '.join(f'{name} = {_format_toml(own)}' for name, own in fields.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_format_toml, cast('list[Any]', value)))}]"
    return json.dumps(value, ensure_ascii=False)


def change_document(spec: Mapping[str, Any], changes: Mapping[str, Any]) -> JobSpec:
    """Return the job of a stored document with other values at dotted paths. Raises ConfigError if it is invalid."""
    changed = dict(spec)
    for path, value in changes.items():
        section, (*names, last) = changed, path.split(".")
        for name in names:
            section[name] = dict(section.get(name) or {})
            section = section[name]
        section[last] = value
    return parse_document(changed)
