"""Search for the files and the objects of stores that a list of paths, prefixes and patterns names."""

import fnmatch
import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa

from dlrm.config import DataConfig
from dlrm.config.patterns import (
    PatternError,
    get_fixed_part,
    hide_credentials,
    is_remote,
    list_local_files,
    make_natural_sort_key,
    require_files,
)
from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile, find_path_values, list_objects
from dlrm.data.raw.stores import StoreError
from dlrm.data.raw.tables.logs import (
    find_kind,
    find_kinds,
    find_kinds_above,
    find_version_file,
    list_table_files,
    make_table_error,
    refuse_table_files,
)
from dlrm.data.raw.tables.table import TableDirectory, TableVersion, refuse_second_versions
from dlrm.data.roots import Roots

DOCUMENT_FIELDS = ("data.train", "data.eval")
"""Fields of the job document that list patterns."""


def find_splits(
    config: DataConfig,
    data_roots: Sequence[str] | None,
    base_directory: Path,
    versions: Mapping[str, str] | None = None,
) -> tuple[list[DataFile], list[DataFile]]:
    """Find the files of `config.train` and of `config.eval`; see `find_files`.

    Raises DataError as `find_files` does, and if a real file is in both.
    """
    train = find_files(config.train, "data.train", data_roots, base_directory, versions=versions)
    evaluation = find_files(config.eval or [], "data.eval", data_roots, base_directory, versions=versions)
    valid = "other files for data.eval, or data.split to hold out a part of data.train"
    refuse_common_files(train, evaluation, "data.eval", "is also in data.train", valid)
    return train, evaluation


def refuse_common_files(
    train: Sequence[DataFile], evaluation: Sequence[DataFile], field: str, message: str, valid: str
) -> None:
    """Raise DataError if a real file is among both, or two versions of a table are: metrics measured on training data
    would be meaningless.

    field: field or option that names `evaluation`. message, valid: rest of the error.
    """
    names, tables = {file.name for file in train}, dict[str, TableVersion]()
    refuse_second_versions(train, tables, None)
    refuse_second_versions(evaluation, tables, field)
    for file in evaluation:
        if file.name in names:
            raise DataError(message, file.name, field=field, valid=valid)


def find_files(
    patterns: Sequence[str],
    field: str | None,
    data_roots: Sequence[str] | None,
    base_directory: Path,
    *,
    refuses_repeats: bool = False,
    versions: Mapping[str, str] | None = None,
    is_growing: bool = False,
) -> list[DataFile]:
    """Find the files that `patterns` name: in the order given, in natural order within a pattern, each real file once.

    The directory of a table of Delta Lake or Iceberg stands for the present files of the table, and a file of its log
    for the files of a version.

    field: field of the job document, such as data.train, or argument of a command, for messages, which number the
    patterns of a document; None if a path alone says what is meant. data_roots: directories, and s3:// or gs://
    prefixes, that must contain every real path; no part of a path below them may start with a dot; None allows all
    paths. base_directory: base of relative patterns. refuses_repeats: whether two patterns may not name the same file,
    since its rows would be missing where it is named again. versions: of tables that were read before, as for
    `list_table_files`. is_growing: whether files are still to come, so that a pattern may name none yet, and empty ones
    are left out. Raises DataError if a pattern names no file, or one that is empty, not a regular file, not readable or
    outside the roots, and if two patterns name versions of one table.
    """
    roots = Roots(data_roots)
    files: dict[str, DataFile] = {}
    named_by: dict[str, int] = {}
    tables: dict[str, TableVersion] = {}
    for number, pattern in enumerate(patterns):
        pattern_field = f"{field}.{number}" if field in DOCUMENT_FIELDS else field
        if is_remote(pattern):
            found = _find_remote_files(pattern, pattern_field, roots, versions or {}, is_growing=is_growing)
        else:
            path = base_directory / pattern
            found = _find_local_files(path, pattern_field, roots, versions or {}, is_growing=is_growing)
        refuse_second_versions(found, tables, pattern_field)
        for file in found:
            if refuses_repeats and named_by.setdefault(file.name, number) != number:
                raise DataError("the file is named twice", file.name, field=pattern_field, valid="each file once")
            files.setdefault(file.name, file)
    return list(files.values())


def _find_local_files(
    pattern: Path, field: str | None, roots: Roots, versions: Mapping[str, str], *, is_growing: bool
) -> Sequence[DataFile]:
    def check_directory(directory: str) -> None:
        roots.check(Path(directory), pattern, field)

    try:
        # Check before the search: a message must not reveal whether a path outside the roots exists.
        roots.check(get_fixed_part(pattern), pattern, field)
        if table := _find_table(pattern, field, roots):
            return list_table_files(*table, versions)
        if is_growing:
            files = [path for path in list_local_files(pattern, check_directory) if path.stat().st_size]
        else:
            files = require_files(pattern, check_directory)
        for path in files:
            roots.check(path, pattern, field)
        if files != [pattern]:
            refuse_table_files(files, field)
        return [_check_file(path, field) for path in files]
    except PatternError as error:
        raise DataError(error.message, pattern, field=field, valid=error.valid) from None
    # pathlib raises RuntimeError for symbolic links that form a loop.
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        valid = "a file that this user may read"
        raise DataError(f"not readable: {reason}", pattern, field=field, valid=valid) from None


def _check_file(path: Path, field: str | None) -> DataFile:
    real = path.resolve()
    if not real.is_file():
        raise DataError("is not a regular file", real, field=field, valid="a regular file")
    with real.open("rb"):
        file = DataFile.from_path(real)
    if file.num_bytes == 0:
        raise DataError("the file is empty", real, field=field, valid="a file with at least one row")
    # A link may have a name that says more, or less, than that of the real file.
    values = find_path_values([str(path), str(real)])
    return replace(file, path_values=values) if values else file


def _find_table(path: Path, field: str | None, roots: Roots) -> tuple[TableDirectory, str] | None:
    """Find the table, and its kind, by `path`: the table's directory, or a file of its log."""
    real = path.resolve()
    if real.is_dir():
        kind = find_kind(real)
        return (TableDirectory(str(real), field, roots), kind) if kind else None
    named = find_version_file(str(real)) if real.is_file() else None
    return named and (TableDirectory(named[0], field, roots, version_file=named[2]), named[1])


def _find_remote_files(
    pattern: str, field: str | None, roots: Roots, versions: Mapping[str, str], *, is_growing: bool
) -> Sequence[DataFile]:
    """Find the objects that `pattern` names, in natural order; a prefix names all objects below it, like a directory.

    field: field of the job document or argument, for messages. roots: must contain every object. versions: as for
    `list_table_files`. is_growing: as for `find_files`. Raises DataError if no object is found, or if one is empty or
    outside the roots.
    """
    base, shown = _get_fixed_part(pattern), hide_credentials(pattern)
    roots.check_object(base, shown, field)
    named = find_version_file(base) if base == pattern.rstrip("/") else None
    place = named[0] if named else base
    roots.check_object(place, shown, field)
    try:
        listed = list_objects(place)
    except StoreError as error:
        raise DataError(error.message, shown, field=field, valid=error.valid) from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"not readable: {error}", shown, field=field, valid="objects that this user may read") from None
    tables = find_kinds(file.name for file in listed)
    objects = {file.name: file for file in listed}
    if named:
        return list_table_files(TableDirectory(place, field, roots, objects, named[2]), named[1], versions)
    if base in tables and base == pattern.rstrip("/"):
        return list_table_files(TableDirectory(base, field, roots, objects), tables[base], versions)
    found = [file for file in listed if not re.search(r"(^|/)[._]", file.name.removeprefix(base))]
    if base != pattern.rstrip("/"):
        found = [file for file in found if _is_named(file.name, pattern.rstrip("/"))]
    if is_growing:
        found = [file for file in found if file.num_bytes]
    if not found and not is_growing:
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


def _is_named(name: str, pattern: str) -> bool:
    """Whether `pattern` matches an object's name or the name of a directory above it."""
    parts, pattern_parts = name.split("/"), pattern.split("/")

    @cache
    def matches(place: int, index: int) -> bool:
        """Whether parts of the pattern, from `index` on, match parts of the name from `place` on."""
        if index == len(pattern_parts):
            return True
        if pattern_parts[index] == "**":
            # It may stand for no part at all.
            return matches(place, index + 1) or (place < len(parts) and matches(place + 1, index))
        is_match = place < len(parts) and fnmatch.fnmatchcase(parts[place], pattern_parts[index])
        return is_match and matches(place + 1, index + 1)

    return matches(0, 0)
