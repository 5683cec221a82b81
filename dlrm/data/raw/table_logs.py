"""Tables of Delta Lake and Hudi: their directories hold files of deleted rows too, which only their logs tell."""

from collections.abc import Iterable
from pathlib import Path

from dlrm.data.errors import DataError

LOGS = ("_delta_log", ".hoodie")
"""Names of the directories with the log of a table."""
_MAX_LEVELS = 5
"""Number of directories above a file that are looked at: tables have a directory for each value of some columns."""


def refuse_table_files(files: Iterable[Path], field: str | None) -> None:
    """Raise DataError where a file that a pattern or a directory stands for belongs to a table."""
    for directory in dict.fromkeys(parent for file in files for parent in file.parents[:_MAX_LEVELS]):
        if any((directory / log).is_dir() for log in LOGS):
            raise make_table_error(str(directory), field)


def make_table_error(name: str, field: str | None) -> DataError:
    """Make the error for the directory or prefix of a table."""
    message = "is a table of Delta Lake or Hudi, whose directory holds deleted rows too"
    valid = "files with a copy of its present rows, or the names of the files that have them"
    return DataError(message, name, field=field, valid=valid)
