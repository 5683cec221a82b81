"""Tables of Delta Lake and Iceberg: their files, by the log, at one version."""

from collections.abc import Mapping, Sequence

from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.delta import list_delta_files
from dlrm.data.raw.iceberg import list_iceberg_files
from dlrm.data.raw.table_directory import TableDirectory
from dlrm.data.raw.table_file import TableFile
from dlrm.data.raw.table_logs import DELTA, ICEBERG, make_table_error

_READERS = {DELTA: ("deltalake", list_delta_files), ICEBERG: ("pyiceberg", list_iceberg_files)}
"""Library and function that read the logs of each kind of table."""
_MAX_MESSAGE = 300


def list_table_files(directory: TableDirectory, kind: str, versions: Mapping[str, str]) -> Sequence[TableFile]:
    """List the files of a table, of which at least one has rows.

    versions: version to read by the directory of a table; other tables are read at their newest version. Raises
    DataError where the table cannot be read by its log.
    """
    if kind not in _READERS:
        raise make_table_error(directory.name, kind, directory.field)
    library, list_files = _READERS[kind]
    try:
        files = list_files(directory, versions.get(directory.name))
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


def list_versions(files: Sequence[DataFile]) -> dict[str, str]:
    """List the versions of the tables that files belong to, by the directories of the tables."""
    return {file.table.directory: file.table.version for file in files if isinstance(file, TableFile)}
