"""Search for the objects that a path, prefix or pattern of an object store names."""

import fnmatch
import glob
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from dlrm.config.patterns import hide_credentials, make_natural_sort_key
from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile, find_path_values, list_objects
from dlrm.data.raw.stores import StoreError
from dlrm.data.raw.tables.listing import list_table_files
from dlrm.data.raw.tables.logs import find_kinds, find_kinds_above, make_table_error
from dlrm.data.raw.tables.table import TableDirectory
from dlrm.data.roots import Roots


def find_remote_files(pattern: str, field: str | None, roots: Roots, versions: Mapping[str, str]) -> Sequence[DataFile]:
    """Find the objects that `pattern` names, in natural order; a prefix names all objects below it, like a directory.

    field: field of the job document or argument, for messages. roots: must contain every object. versions: as for
    `list_table_files`. Raises DataError if no object is found, or if one is empty or outside the roots.
    """
    base, shown = _get_fixed_part(pattern), hide_credentials(pattern)
    roots.check_object(base, shown, field)
    try:
        listed = list_objects(base)
    except StoreError as error:
        raise DataError(error.message, shown, field=field, valid=error.valid) from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"not readable: {error}", shown, field=field, valid="objects that this user may read") from None
    tables = find_kinds(file.name for file in listed)
    if base in tables and base == pattern.rstrip("/"):
        objects = {file.name: file for file in listed}
        return list_table_files(TableDirectory(base, field, roots, objects), tables[base], versions)
    found = [file for file in listed if not _is_hidden(file.name.removeprefix(base))]
    if base != pattern.rstrip("/"):
        found = [file for file in found if _is_named(file.name, pattern.rstrip("/"))]
    if not found:
        message = "the pattern matches no object" if glob.has_magic(pattern) else "no such object"
        raise DataError(message, shown, field=field, valid="an object that exists, a prefix or a pattern")
    if [file.name for file in listed] != [base]:
        tables |= find_kinds_above(base)
    for table, kind in tables.items():
        if any(file.name.startswith(f"{table}/") for file in found):
            raise make_table_error(table, kind, field)
    for file in found:
        if file.num_bytes == 0:
            raise DataError("the object is empty", file.name, field=field, valid="an object with at least one row")
    ordered = sorted(found, key=lambda file: make_natural_sort_key(file.name))
    return [replace(file, path_values=find_path_values([file.name])) for file in ordered]


def _get_fixed_part(pattern: str) -> str:
    """Return the parts of `pattern` before the first one with a wildcard; all of it if there is none."""
    parts = pattern.rstrip("/").split("/")
    magic = [index for index, part in enumerate(parts) if glob.has_magic(part)]
    return "/".join(parts[: magic[0]]) if magic else "/".join(parts)


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _is_named(name: str, pattern: str) -> bool:
    """Whether `pattern` matches an object's name or the name of a directory above it."""
    pattern_parts = pattern.split("/")
    indices = _skip_wildcards(pattern_parts, {0})
    for part in name.split("/"):
        matching = {
            index
            for index in indices
            if pattern_parts[index] == "**" or fnmatch.fnmatchcase(part, pattern_parts[index])
        }
        indices = _skip_wildcards(
            pattern_parts, {index if pattern_parts[index] == "**" else index + 1 for index in matching}
        )
        if len(pattern_parts) in indices:
            return True
    return False


def _skip_wildcards(pattern_parts: Sequence[str], indices: set[int]) -> set[int]:
    """Add to `indices`, of parts of a pattern, those after a `**`, since it may stand for no part at all."""
    reached = set(indices)
    for index, part in enumerate(pattern_parts):
        if part == "**" and index in reached:
            reached.add(index + 1)
    return reached
