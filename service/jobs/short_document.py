"""The shortest document of a job: no field of it comes by itself."""

from collections.abc import Iterator, Mapping, Set
from typing import Any, cast

from dlrm.config import ConfigError, JobSpec, parse_job
from service.job_schema import find_meaning
from service.jobs.toml_text import format_document
from service.schemas import DocumentDifference, ShortDocument

Path = tuple[str, ...]
_SIZES = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "GB": 10**9}
_SIZE_FIELDS = ("memory", "gpu_memory")
"""Fields in bytes, which a document may also write with a unit."""


def shorten_document(whole: Mapping[str, Any]) -> ShortDocument:
    """Return the shortest document that makes the same job as the whole document of an earlier one.

    Raises ConfigError if this version of the service does not accept the document.
    """
    job = parse_job(whole)
    usual = _list_usual_values(job)
    stated = _find_stated_fields(job, usual)
    differences: list[DocumentDifference] = []
    for path, value in list(stated.items()):
        others = {other: own for other, own in stated.items() if other != path}
        try:
            without = parse_job(_nest(others))
        except ConfigError:
            default = _get(usual, path)
        else:
            # The values of presets and the settings of optimizers come back by themselves.
            if without == job:
                stated = others
                continue
            default = _get(without.model_dump(mode="json", include={path[0]}), path)
        # TOML has no null: wherever null is not the default, false means the same.
        stated[path] = False if value is None else _write_size(path, value)
        field = ".".join(path)
        differences.append(
            DocumentDifference(
                field=field, value=stated[path], default=_write_size(path, default), meaning=find_meaning(field)
            )
        )
    document = _nest(stated)
    return ShortDocument(toml=format_document(document), document=document, differences=differences)


def _list_usual_values(job: JobSpec) -> dict[str, Any]:
    """List the values of the fields of a document that states nothing but the preset of `job`."""
    usual = parse_job({"data": {"train": ["-"]}, "preset": job.preset}).model_dump(mode="json")
    usual["preset"], usual["data"]["train"] = None, []
    return usual


def _find_stated_fields(job: JobSpec, usual: Mapping[str, Any]) -> dict[Path, Any]:
    """Find fields with which a document makes `job`, and their values.

    These fields differ from the usual values, or from the values that other stated fields bring: each optimizer has
    defaults of its own.
    """
    whole = job.model_dump(mode="json", exclude={"filled_by_preset"})
    # Entries of lists, and sections that are null by default, have the defaults of their own kind.
    brief = job.model_dump(mode="json", exclude_defaults=True)
    stated: dict[Path, Any] = {}
    found = usual
    while True:
        # What the document states stays stated, even if the preset has that value too: its record says so.
        filled = set(found["filled_by_preset"] or ()).difference(job.filled_by_preset or ())
        fields = dict(_list_differences(whole, brief, found, filled))
        if fields.keys() <= stated.keys():
            return stated
        stated |= fields
        found = parse_job(_nest(stated)).model_dump(mode="json")


def _list_differences(
    whole: Mapping[str, Any], brief: Mapping[str, Any], other: Mapping[str, Any], filled: Set[str], above: Path = ()
) -> Iterator[tuple[Path, Any]]:
    """Yield each field that differs from another document, or is among `filled`, with its `brief` value."""
    for name, value in whole.items():
        path, known = (*above, name), other[name]
        if isinstance(value, dict) and isinstance(known, dict) and known:
            section, own = cast("dict[str, Any]", value), brief.get(name, {})
            yield from _list_differences(section, own, cast("dict[str, Any]", known), filled, path)
        elif value != known or ".".join(path) in filled:
            yield path, brief.get(name, value)


def _nest(fields: Mapping[Path, Any]) -> dict[str, Any]:
    """Return the document with the values of `fields`."""
    document: dict[str, Any] = {}
    for (*sections, name), value in fields.items():
        section = document
        for part in sections:
            section = section.setdefault(part, {})
        section[name] = value
    return document


def _get(document: Any, path: Path) -> Any:
    """Return the value at `path`; None if a section on the way is null."""
    for name in path:
        document = document and document[name]
    return document


def _write_size(path: Path, value: Any) -> Any:
    """Return a number of bytes in the unit in which it is shortest, and any other value unchanged."""
    if path[-1] not in _SIZE_FIELDS or not isinstance(value, int):
        return value
    numbers = {unit: value // size for unit, size in _SIZES.items() if value % size == 0}
    unit = min(numbers, key=lambda unit: numbers[unit], default="")
    return f"{numbers[unit]}{unit}" if unit else value
