"""Job documents of files in TOML or JSON, with `--set` applied; errors name the file, and the line or the field."""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from cli.local.errors import BadInputError
from cli.local.set_option import apply_settings, name_source, parse_settings
from dlrm.config import (
    ConfigError,
    DocumentTextError,
    JobSpec,
    decode_document,
    describe_odd_character,
    find_line,
    parse_job,
)
from dlrm.config.patterns import is_remote

_DATA_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather", ".gz", ".zst")
_FIRST_BYTES = 1 << 16
_FREE_SUFFIXES = ("", ".txt")
"""Suffixes of files whose first character says whether they are JSON: Notepad writes job.toml.txt."""
_VALID = "a job document is TOML or JSON with at least a section `data`"
_INFERRED_FIELDS = ("data.train", "data.eval", "data.format", "data.schema", "data.weight_column", "data.vocabulary")
"""Fields of a job document whose valid values depend on the data files."""


def read_job(path: Path, settings: Sequence[str] | None = None) -> tuple[dict[str, Any], JobSpec]:
    """Read the job document in `path`, and return it both as written and as a validated JobSpec.

    settings: arguments of `--set`, which are part of both. Raises BadInputError.
    """
    return parse_with_settings(read_document(path), settings, str(path))


def parse_with_settings(
    document: Mapping[str, Any], settings: Sequence[str] | None, source: str
) -> tuple[dict[str, Any], JobSpec]:
    """Apply the arguments of `--set` to a job document, and return it as a document and as a validated JobSpec.

    source: what error messages name if the fault is not in a setting. Raises BadInputError.
    """
    parsed = parse_settings(settings)
    changed = apply_settings(document, parsed)
    try:
        return changed, parse_job(changed)
    except ConfigError as error:
        raise BadInputError(
            *(f"{name_source(field.field, parsed, source)}: {field}" for field in error.errors)
        ) from None


def check_settings_early(settings: Sequence[str] | None) -> None:
    """Check the arguments of `--set` for a job document that is inferred later, as far as they do not depend on it.

    Raises BadInputError if one is no field, or has a value that no such document may have.
    """
    early = [
        text
        for text, setting in zip(settings or (), parse_settings(settings), strict=True)
        if not any(f"{field}.".startswith(f"{setting.field}.") for field in _INFERRED_FIELDS)
        and not setting.field.startswith(tuple(f"{field}." for field in _INFERRED_FIELDS))
    ]
    # What the document has besides is of no concern, so that every fault is one of the settings.
    parse_with_settings({"data": {"train": ["rows"]}}, early, "--set")


def check_settings(document: Mapping[str, Any], settings: Sequence[str] | None) -> None:
    """Check that the arguments of `--set` leave a valid job document valid. Raises BadInputError if they do not."""
    try:
        parse_job(document)
    except ConfigError:
        # Its own faults are not those of the settings, which may even mend them.
        return
    parse_with_settings(document, settings, "--set")


def is_document(source: str) -> bool:
    """Whether a source is a document, by its suffix; a `.json` file may hold rows as well."""
    suffix = Path(source).suffix.lower()
    return suffix in _READERS and not (suffix == ".json" and _holds_rows(source))


def _holds_rows(source: str) -> bool:
    """Whether a `.json` source holds an array or one object per line, or names several files."""
    if is_remote(source):
        return True
    try:
        with Path(source).open("rb") as file:
            start = file.read(_FIRST_BYTES).strip()
    except OSError:
        return "*" in source
    first, *others = start.split(b"\n", 1)
    try:
        json.loads(first)
    except ValueError:
        return start.startswith(b"[")
    return bool(others) or start.startswith(b"[")


def is_toml(path: Path, text: str) -> bool:
    """Whether a document is TOML, by the name of its file, or else by its text."""
    suffix = path.suffix.lower()
    return suffix == ".toml" or (suffix in _FREE_SUFFIXES and not text.lstrip().startswith(("{", "//", "/*")))


def read_text(path: Path) -> str:
    """Read the text of a document. Raises BadInputError."""
    try:
        return decode_document(path.read_bytes())
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None
    except DocumentTextError as error:
        raise BadInputError(f"{path}: {error}") from None


def read_document(path: Path) -> dict[str, Any]:
    """Read a document. Raises BadInputError."""
    suffix = path.suffix.lower()
    if suffix not in (*_READERS, *_FREE_SUFFIXES):
        hint = f"; `dlrm prepare --infer {path}` writes one for these rows" if suffix in _DATA_SUFFIXES else ""
        kind = "; YAML is not read" if suffix in (".yaml", ".yml") else ""
        raise BadInputError(f"{path}: a job document must be a .toml or .json file{kind}{hint}")
    text = read_text(path)
    if not text.strip():
        raise BadInputError(f"{path}: is empty (valid: {_VALID})")
    kind = ".toml" if is_toml(path, text) else ".json"
    document, fault = _parse(text, kind)
    if fault:
        other = ".json" if kind == ".toml" else ".toml"
        hint = f"; it reads as {_NAMES[other]}: name it {path.stem}{other}" if _parse(text, other)[0] else ""
        raise BadInputError(f"{path}: not valid {_NAMES[kind]}: {fault}{hint}")
    if not isinstance(document, dict):
        raise BadInputError(f'{path}: the document should be an object, such as {{"data": {{"train": ["day_*.tsv"]}}}}')
    return cast("dict[str, Any]", document)


def _parse(text: str, kind: str) -> tuple[Any, str]:
    """Parse a document; return it and an empty text, or else None and the fault."""
    try:
        return _READERS[kind](text), ""
    except json.JSONDecodeError as error:
        fault = f"line {error.lineno}, column {error.colno}: {error.msg}"
        if text[error.pos :].lstrip().startswith(("//", "/*", "#")):
            fault = f"line {error.lineno} is a comment, and JSON has none: remove it, or write the document as TOML"
        return None, _add_character(fault, text, error.lineno)
    except tomllib.TOMLDecodeError as error:
        return None, _add_character(str(error), text, find_line(error))
    except RecursionError:
        return None, "it is nested too deeply"
    except ValueError as error:
        # A key that is there twice, or a number of more digits than Python reads.
        return None, str(error)


def _add_character(fault: str, text: str, line: int | None) -> str:
    return "; ".join(filter(None, (fault, describe_odd_character(text, line))))


def _read_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_build_object)


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object. Raises ValueError for a key that is there twice: Python's parser would take the last one."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} appears twice in one object; remove one of them")
        result[key] = value
    return result


_READERS: Mapping[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".json": _read_json}
_NAMES = {".toml": "TOML", ".json": "JSON"}
