"""A Parquet file of a table of Delta Lake or Iceberg: the table's log says which columns and rows of it count."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.data.raw.data_file import DataFile


@dataclass(frozen=True)
class TableVersion:
    """A table as it was at one time."""

    directory: str
    """Real path or URI of its directory."""
    version: str
    """Version of a Delta table, or id of a snapshot of an Iceberg table."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table, and where its files have it."""

    name: str
    stored_names: tuple[str, ...]
    """Names that it may have in a file whose columns have no ids."""
    field_id: int | None = None
    """Id in a file whose columns have ids; None: the stored names count in every file."""


@dataclass(frozen=True)
class EqualityDelete:
    """A file that deletes all rows of others with the values of one of its rows."""

    file: DataFile
    keys: tuple[TableColumn, ...]
    """Columns whose values are compared."""


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
