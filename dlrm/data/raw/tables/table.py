"""Tables of Delta Lake and Iceberg: their directories, and their files, which the log names, at one version."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.config.patterns import hide_credentials, is_remote, make_natural_sort_key
from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile, find_object
from dlrm.data.raw.stores import StoreError
from dlrm.data.roots import Roots


@dataclass(frozen=True)
class TableVersion:
    """A table as it was at one time."""

    directory: str
    """Real path or URI of its directory."""
    place: str
    """The directory, or the file of its log that a user has named."""
    version: str
    """Version of a Delta table, or id of a snapshot of an Iceberg table."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table, and where its files have it."""

    name: str
    stored_names: tuple[str, ...]
    """Possible names of the column in a file whose columns have no ids."""
    field_id: int | None = None
    """Id in a file whose columns have ids; None: the stored names count in every file."""


@dataclass(frozen=True)
class EqualityDelete:
    """A file that deletes all rows of others with the values of one of its rows."""

    file: DataFile
    keys: tuple[TableColumn, ...]
    """Columns whose values are compared."""


METADATA = re.compile(r"v?\d+(-[^/]*)?(\.gz)?\.metadata\.json(\.gz)?|version-hint\.text")
"""Names of the files in the directory `metadata` of an Iceberg table that describe it as a whole."""
_NO_ROWS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class TableFile(DataFile):
    """A Parquet file as a version of a table has it."""

    table: TableVersion = field(compare=False)
    columns: Sequence[TableColumn] = field(compare=False)
    """All columns of the table."""
    constants: Mapping[str, pa.Scalar] = field(compare=False)
    """Values of columns in all rows, by name, if the file lacks these columns. Others that it lacks are missing."""
    deleted_rows: NDArray[np.int64] = field(default_factory=lambda: _NO_ROWS, compare=False)
    """Numbers of rows of the file that the table does not have, ascending, each once."""
    equality_deletes: tuple[EqualityDelete, ...] = field(default=(), compare=False)

    def get_context(self, names: Collection[str]) -> list[Any]:
        columns = [astuple(column) for column in self.columns if column.name in names]
        constants = {name: [str(value.type), str(value)] for name, value in self.constants.items() if name in names}
        deleted = hashlib.sha256(self.deleted_rows.tobytes()).hexdigest()
        deletes = [[file.file.get_identity(), *map(astuple, file.keys)] for file in self.equality_deletes]
        return [self.table.version, columns, constants, deleted, deletes]


class TableDirectory:
    """The directory of a table, whose log may name files elsewhere, too. Every file must be inside the data roots."""

    def __init__(
        self,
        name: str,
        field: str | None,
        roots: Roots,
        objects: Mapping[str, DataFile] | None = None,
        version_file: str | None = None,
    ) -> None:
        """Set where the table is.

        name: real path, or URI. field: for messages. objects: all those below a URI. version_file: name, relative to
        it, of the file of the log that stands for a version; None: the present version.
        """
        self.name, self.field = name, field
        self.version_file = None if version_file is None else version_file.rpartition("/")[2]
        """Name of that file without its directory."""
        self.place = name if version_file is None else f"{name}/{version_file}"
        """Path or URI by which its version is known to a later attempt."""
        self._roots, self.objects = roots, objects or {}

    def list_names(self, folder: str) -> list[str]:
        """List the names of the visible files directly in a folder of the table. Raises DataError for a link that leads
        out of the data roots."""
        start = f"{self.name}/{folder}/"
        if is_remote(self.name):
            return [name.removeprefix(start) for name in self.objects if name.rpartition("/")[0] + "/" == start]
        self._roots.check(Path(start), start, self.field, "a table")
        paths = [path for path in Path(start).iterdir() if not path.name.startswith(".")]
        for path in paths:
            self._roots.check(path, path, self.field)
        return [path.name for path in paths]

    def find(self, name: str) -> DataFile:
        """Find a file by its path or URI. Raises DataError if it is missing, or outside the data roots."""
        scheme, _, rest = name.partition("://")
        if scheme in ("s3a", "s3n"):
            name = f"s3://{rest}"
        elif name.startswith("file:"):
            name = "/" + name.removeprefix("file:").lstrip("/")
        elif rest and not is_remote(name):
            valid = "a table whose files are on this machine, in s3:// or in gs://"
            raise self.make_error(f"names a file in {scheme}://", valid)
        try:
            if not is_remote(name):
                real = Path(self.name, name).resolve()
                self._roots.check(real, name, self.field)
                return DataFile.from_path(real)
            self._roots.check_object(name, hide_credentials(name), self.field)
            if found := self.objects.get(name) or find_object(name):
                return found
        except (OSError, RuntimeError, StoreError, pa.ArrowException):
            pass
        message = f"names a file that cannot be read: {hide_credentials(name)}"
        raise self.make_error(message, "a table with all its files")

    def make_error(self, message: str, valid: str) -> DataError:
        """Make an error about the table. message: what follows the name of its directory."""
        return DataError(message, self.name, field=self.field, valid=valid)


def sort_files(files: Iterable[tuple[int, TableFile]]) -> list[TableFile]:
    """Sort files by directory, in natural order, and within one by the number of their writing, then by name."""

    def make_key(numbered: tuple[int, TableFile]) -> tuple[Any, int, Any]:
        directory, _, name = numbered[1].name.rpartition("/")
        return make_natural_sort_key(directory), numbered[0], make_natural_sort_key(name)

    return [file for _, file in sorted(files, key=make_key)]


def refuse_second_versions(files: Iterable[DataFile], found: dict[str, TableVersion], field: str | None) -> None:
    """Raise DataError if a table is read at two versions, or by two names: its rows would be read twice, or measured
    although they were trained on.

    found: versions of tables found before, by directory; the tables of `files` are added. field: names `files` in
    messages.
    """
    for file in files:
        if not isinstance(file, TableFile):
            continue
        table, other = file.table, found.setdefault(file.table.directory, file.table)
        if table != other:
            message = f"is version {table.version} of a table that is also read at version {other.version}, as "
            valid = "one version of each table, by one name, in data.train and data.eval together"
            raise DataError(f"{message}{other.place}", table.place, field=field, valid=valid)


def list_versions(files: Sequence[DataFile]) -> dict[str, str]:
    """List the versions of the tables that files belong to, by the places of the tables."""
    return {file.table.place: file.table.version for file in files if isinstance(file, TableFile)}
