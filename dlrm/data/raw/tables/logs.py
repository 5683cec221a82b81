"""Tables of Delta Lake, Iceberg and Hudi: their directories hold deleted rows too, known only from the logs.

The library of the kind of table lists the files by the log.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from pyarrow import fs

from dlrm.data.errors import DataError
from dlrm.data.raw.stores import open_store
from dlrm.data.raw.tables.table import METADATA, TableDirectory, TableFile

DELTA, ICEBERG, HUDI = "Delta Lake", "Iceberg", "Hudi"
_LOGS = {"_delta_log": DELTA, ".hoodie": HUDI}
"""Kinds of tables by the directory of their log."""
_IN_LOG = re.compile(rf"(.*?)/(?:(_delta_log|\.hoodie)/.*|metadata/(?:{METADATA.pattern}))", re.DOTALL)
"""Paths of files of a log: directory of the table, and of the log unless it is Iceberg's."""
_VERSION_FILE = re.compile(
    r"(.*)/((_delta_log/)\d{20}\.(?:json|checkpoint\.[^/]*parquet)|metadata/(?:[^/]*\.metadata\.json[^/]*|snap-[^/]*\.avro))",
    re.DOTALL,
)
_MAX_LEVELS = 12
"""Number of directories above a file that are looked at: tables have a directory for each value of some columns."""


def find_kind(directory: Path) -> str | None:
    """Find the kind of the table whose directory this is; None if it is none."""
    for log, kind in _LOGS.items():
        if (directory / log).is_dir():
            return kind
    metadata = directory / "metadata"
    return ICEBERG if metadata.is_dir() and any(METADATA.fullmatch(path.name) for path in metadata.iterdir()) else None


def find_kinds(paths: Iterable[str]) -> dict[str, str]:
    """Find the directories of the tables whose logs have some of these files, each with the kind of its table."""
    found = (
        _IN_LOG.fullmatch(path)
        for path in paths
        if "/_delta_log/" in path or "/.hoodie/" in path or "/metadata/" in path
    )
    return {match[1]: _LOGS.get(match[2], ICEBERG) for match in found if match}


def find_version_file(path: str) -> tuple[str, str, str] | None:
    """Split the path of a file that stands for a version of a table: the table's directory, its kind, and the name.

    The name is relative to the directory. The file is a commit or a checkpoint of Delta Lake, or Iceberg's metadata or
    list of a snapshot. None: the path names no such file.
    """
    found = _VERSION_FILE.fullmatch(path)
    return found and (found[1], DELTA if found[3] else ICEBERG, found[2])


def find_kinds_above(uri: str) -> dict[str, str]:
    """Find the tables in whose directories a prefix of a store is, as far as these may be listed; see `find_kinds`.

    Raises StoreError.
    """
    store, path = open_store(uri)
    scheme = uri.partition("://")[0]
    above = [str(parent) for parent in PurePosixPath(path).parents][:-1][:_MAX_LEVELS]
    folders = [f"{parent}/{folder}" for parent in above for folder in (*_LOGS, "metadata")]
    try:
        found = [info.path for info in store.get_file_info(folders) if info.type == fs.FileType.Directory]
        names = [info.path for folder in found for info in store.get_file_info(fs.FileSelector(folder))]
    except OSError:
        return {}
    return find_kinds(f"{scheme}://{name}" for name in names)


def refuse_table_files(files: Iterable[Path], field: str | None) -> None:
    """Raise DataError if a file that a pattern or a directory stands for belongs to a table, by its name or, behind
    links, by its real path."""
    paths = (path for file in files for path in (file, file.resolve()))
    for directory in dict.fromkeys(parent for path in paths for parent in path.parents[:_MAX_LEVELS]):
        if kind := find_kind(directory):
            raise make_table_error(str(directory), kind, field)


def make_table_error(name: str, kind: str, field: str | None) -> DataError:
    """Make the error for a Hudi table, and for files of other tables that a user did not name one by one.

    name: directory of the table.
    """
    message = f"is a table of {kind}, whose directory holds deleted rows too"
    copy = "files with a copy of its present rows"
    whole = f"{copy}, or" if kind == HUDI else f"{name}, to read its present rows by its log, or"
    return DataError(message, name, field=field, valid=f"{whole} the names of files that hold no other rows")


_LIBRARIES = {DELTA: "deltalake", ICEBERG: "pyiceberg"}
"""Library that reads the logs of each kind of table."""
_MAX_MESSAGE = 300


def list_table_files(directory: TableDirectory, kind: str, versions: Mapping[str, str]) -> Sequence[TableFile]:
    """List the files of a table; at least one of them has rows.

    versions: version to read by the place of a table; other tables are read at their newest version. Raises
    DataError if the table cannot be read by its log.
    """
    library = _LIBRARIES.get(kind)
    if library is None:
        raise make_table_error(directory.name, kind, directory.field)
    try:
        if kind == DELTA:
            from dlrm.data.raw.tables.delta import list_delta_files as list_files
        else:
            from dlrm.data.raw.tables.iceberg import list_iceberg_files as list_files
        files = list_files(directory, versions.get(directory.place))
    except ImportError:
        message = f"is a table of {kind}, which the library {library} reads by its log, and that is not installed"
        valid = "pip install 'dlrm-service[tables]', or files with a copy of its present rows"
        raise directory.make_error(message, valid) from None
    except DataError:
        raise
    # The libraries raise errors of many kinds where a log is damaged or has what they cannot read.
    except Exception as error:
        reason = " ".join(str(error).partition(" [type=")[0].split())[:_MAX_MESSAGE] or type(error).__name__
        valid = f"a table that {library} can read, or files with a copy of its present rows"
        raise directory.make_error(f"is a table of {kind} whose log cannot be read: {reason}", valid) from None
    if not files:
        raise directory.make_error(f"is a table of {kind} that has no rows", "a table with rows")
    return files
