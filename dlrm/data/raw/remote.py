"""Search for the objects that a path, prefix or pattern of an object store names."""

import fnmatch
import glob
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import fs

from dlrm.config.patterns import hide_credentials, make_natural_sort_key
from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.stores import StoreError, open_store
from dlrm.data.raw.table_logs import LOGS, make_table_error


def find_remote_files(pattern: str, field: str | None, roots: Sequence[str] | None) -> list[DataFile]:
    """Find the objects that `pattern` names, in natural order; a prefix names all objects below it, like a directory.

    field: field of the job document or argument, for messages. roots: prefixes, one of which must contain every object;
    None allows all objects. Raises DataError where no object is found, or where one is empty or outside the roots.
    """
    base, shown = _get_fixed_part(pattern), hide_credentials(pattern)
    if roots is not None and not any(f"{base}/".startswith(f"{root.rstrip('/')}/") for root in roots):
        under = " or ".join(roots) or "a data root; no data root is in an object store"
        raise DataError("is outside the data roots", shown, field=field, valid=f"an object under {under}")
    try:
        found, tables = _list_objects(base)
    except StoreError as error:
        raise DataError(error.message, shown, field=field, valid=error.valid) from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"not readable: {error}", shown, field=field, valid="objects that this user may read") from None
    if base != pattern.rstrip("/"):
        found = [file for file in found if _is_named(file.name, pattern.rstrip("/"))]
    if not found:
        message = "the pattern matches no object" if glob.has_magic(pattern) else "no such object"
        raise DataError(message, shown, field=field, valid="an object that exists, a prefix or a pattern")
    for table in tables:
        if any(file.name.startswith(f"{table}/") for file in found):
            raise make_table_error(table, field)
    for file in found:
        if file.num_bytes == 0:
            raise DataError("the object is empty", file.name, field=field, valid="an object with at least one row")
    return sorted(found, key=lambda file: make_natural_sort_key(file.name))


def find_object(name: str) -> DataFile | None:
    """Find the object of that name as it is now; None where there is none. Raises StoreError and OSError."""
    store, path = open_store(name)
    info = store.get_file_info(path)
    return _make_data_file(name.partition("://")[0], info) if info.type == fs.FileType.File else None


def _get_fixed_part(pattern: str) -> str:
    """Return the parts of `pattern` before the first one with a wildcard; all of it where there is none."""
    parts = pattern.rstrip("/").split("/")
    magic = [index for index, part in enumerate(parts) if glob.has_magic(part)]
    return "/".join(parts[: magic[0]]) if magic else "/".join(parts)


def _list_objects(name: str) -> tuple[list[DataFile], list[str]]:
    """List the object of that name, or the objects below it except hidden ones, and the prefixes of tables below it."""
    store, path = open_store(name)
    scheme = name.partition("://")[0]
    info = store.get_file_info(path)
    if info.type == fs.FileType.File:
        return [_make_data_file(scheme, info)], []
    if info.type == fs.FileType.NotFound:
        return [], []
    below = store.get_file_info(fs.FileSelector(path, recursive=True))
    files = [info for info in below if info.type == fs.FileType.File]
    inside = [(info.path, f"/{log}/") for info in files for log in LOGS if f"/{log}/" in info.path]
    tables = {f"{scheme}://{file.partition(log)[0]}" for file, log in inside}
    shown = [_make_data_file(scheme, info) for info in files if not _is_hidden(info.path.removeprefix(path))]
    return shown, sorted(tables)


def _make_data_file(scheme: str, info: fs.FileInfo) -> DataFile:
    return DataFile(f"{scheme}://{info.path}", info.size, info.mtime_ns or 0)


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
