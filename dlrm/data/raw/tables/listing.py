"""Lists the files of a table by its log, with the library of its kind."""

from collections.abc import Callable, Mapping, Sequence

from dlrm.data.errors import DataError
from dlrm.data.raw.tables.logs import DELTA, ICEBERG, make_table_error
from dlrm.data.raw.tables.table import TableDirectory, TableFile

_LIBRARIES = {DELTA: "deltalake", ICEBERG: "pyiceberg"}
"""Library that reads the logs of each kind of table."""
_MAX_MESSAGE = 300


def list_table_files(directory: TableDirectory, kind: str, versions: Mapping[str, str]) -> Sequence[TableFile]:
    """List the files of a table; at least one of them has rows.

    versions: version to read by the directory of a table; other tables are read at their newest version. Raises
    DataError if the table cannot be read by its log.
    """
    library = _LIBRARIES.get(kind)
    if library is None:
        raise make_table_error(directory.name, kind, directory.field)
    try:
        files = _import_reader(kind)(directory, versions.get(directory.name))
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


def _import_reader(kind: str) -> Callable[[TableDirectory, str | None], list[TableFile]]:
    """Import the function that lists the files of a kind of table. Raises ImportError without its optional library."""
    if kind == DELTA:
        from dlrm.data.raw.tables.delta import list_delta_files

        return list_delta_files
    from dlrm.data.raw.tables.iceberg import list_iceberg_files

    return list_iceberg_files
