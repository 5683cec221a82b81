"""Changes of a job document: applied to a stored one, and written in TOML."""

from collections.abc import Mapping
from typing import Any

from dlrm.config import JobSpec
from service.jobs.document import parse_document
from service.jobs.toml_text import format_value
from service.schemas import AdvisedChange


def make_change(field: str, value: Any) -> AdvisedChange:
    """Make the change of one field, with its line in TOML."""
    return AdvisedChange(field=field, value=value, toml=f"{field} = {format_value(value)}")


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
