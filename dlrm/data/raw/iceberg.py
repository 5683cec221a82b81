"""Files of a table of Iceberg, by its metadata: those of one snapshot, with the deletes that apply to each.

Which deletes apply to which file is said in "Scan Planning" of Iceberg's specification.
"""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.table_directory import TableDirectory, sort_files
from dlrm.data.raw.table_file import EqualityDelete, TableColumn, TableFile

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry

    from dlrm.data.raw.iceberg_metadata import IcebergSnapshot


def list_iceberg_files(directory: TableDirectory, version: str | None) -> list[TableFile]:
    """List the files of a version of a table; version None is the present one.

    Raises ImportError without the library that reads metadata, DataError if a file is missing, is not Parquet or is
    outside the data roots, and exceptions of that library.
    """
    # Imported late: the library is optional.
    from pyiceberg.manifest import DataFileContent, FileFormat

    from dlrm.data.raw.iceberg_metadata import open_snapshot

    snapshot = open_snapshot(directory, version)
    entries = snapshot.list_entries()
    data = [entry for entry in entries if entry.data_file.content == DataFileContent.DATA]
    other = next((entry.data_file for entry in data if entry.data_file.file_format != FileFormat.PARQUET), None)
    if other is not None:
        valid = "a table of Parquet files, or Parquet files with a copy of its present rows"
        raise directory.make_error(f"has files of the format {other.file_format.value}", valid)
    columns = _list_columns(snapshot)
    deletes = _Deletes(snapshot, entries)
    files: list[tuple[int, TableFile]] = []
    for entry in data:
        file = TableFile(
            **vars(snapshot.find(entry.data_file.file_path)),
            table=snapshot.version,
            columns=columns,
            constants=_list_constants(snapshot, entry),
            deleted_rows=deletes.find_rows(entry),
            equality_deletes=deletes.find_equality_deletes(entry),
        )
        files.append((entry.sequence_number or 0, file))
    return sort_files(files)


def _list_columns(snapshot: "IcebergSnapshot") -> list[TableColumn]:
    """List the columns of a table. Files that were not written for Iceberg have no ids, but a mapping of names."""
    mapping: dict[int, tuple[str, ...]] = {
        field["field-id"]: tuple(field["names"])
        for field in json.loads(snapshot.metadata.properties.get("schema.name-mapping.default", "[]"))
        if "field-id" in field
    }
    fields = snapshot.schema.fields
    return [TableColumn(field.name, mapping.get(field.field_id, (field.name,)), field.field_id) for field in fields]


def _list_constants(snapshot: "IcebergSnapshot", entry: "ManifestEntry") -> Mapping[str, pa.Scalar]:
    """List the values of columns that the file may lack: those of its partition, and defaults of later columns."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.transforms import IdentityTransform

    values: dict[int, Any] = {
        field.field_id: field.initial_default for field in snapshot.schema.fields if field.initial_default is not None
    }
    spec = snapshot.metadata.specs()[entry.data_file.spec_id]
    for position, field in enumerate(spec.fields):
        if isinstance(field.transform, IdentityTransform):
            values[field.source_id] = entry.data_file.partition[position]
    fields = [field for field in snapshot.schema.fields if field.field_id in values]
    return {field.name: pa.scalar(values[field.field_id], schema_to_pyarrow(field.field_type)) for field in fields}


class _Deletes:
    """Deletes of a snapshot."""

    def __init__(self, snapshot: "IcebergSnapshot", entries: Iterable["ManifestEntry"]) -> None:
        """Read the positions of deleted rows; rows that are deleted by their values are found when they are read."""
        from pyiceberg.manifest import DataFileContent, FileFormat

        self._snapshot = snapshot
        self._vectors: dict[str, list[NDArray[np.int64]]] = {}
        """Rows that deletion vectors delete, by the path of the data file."""
        self._positions: dict[str, list[tuple[int, NDArray[np.int64]]]] = {}
        """Rows that files of positions delete, each with the sequence number of the file."""
        self._equality: list[tuple[ManifestEntry, EqualityDelete]] = []
        for entry in entries:
            delete = entry.data_file
            if delete.content == DataFileContent.DATA:
                continue
            file = snapshot.find(delete.file_path)
            if delete.content == DataFileContent.EQUALITY_DELETES:
                keys = tuple(map(snapshot.find_key, delete.equality_ids or ()))
                self._equality.append((entry, EqualityDelete(file, keys)))
            elif delete.file_format == FileFormat.PUFFIN:
                for path, rows in _read_vectors(file):
                    self._vectors.setdefault(path, []).append(rows)
            else:
                for path, rows in _read_positions(file):
                    self._positions.setdefault(path, []).append((entry.sequence_number or 0, rows))

    def find_rows(self, entry: "ManifestEntry") -> NDArray[np.int64]:
        """Find the numbers of the rows of a data file that are deleted by their position."""
        path, written = entry.data_file.file_path, entry.sequence_number or 0
        # A deletion vector has all that files of positions have deleted before.
        found = self._vectors.get(path) or [rows for number, rows in self._positions.get(path, ()) if number >= written]
        return np.unique(np.concatenate([*found, np.empty(0, dtype=np.int64)]))

    def find_equality_deletes(self, entry: "ManifestEntry") -> tuple[EqualityDelete, ...]:
        """Find the files that may delete rows of a data file by their values."""
        written, partition = entry.sequence_number or 0, (entry.data_file.spec_id, entry.data_file.partition)

        def applies(delete: "ManifestEntry") -> bool:
            is_later = (delete.sequence_number or 0) > written
            spec_id = delete.data_file.spec_id
            is_global = self._snapshot.metadata.specs()[spec_id].is_unpartitioned()
            return is_later and (is_global or (spec_id, delete.data_file.partition) == partition)

        return tuple(delete for delete_entry, delete in self._equality if applies(delete_entry))


def _read_positions(file: DataFile) -> Iterable[tuple[str, NDArray[np.int64]]]:
    """Read a file of positions: yield the paths of data files, each with numbers of its rows."""
    with file.open() as raw:
        table = parquet.read_table(raw, columns=["file_path", "pos"])
    for group in table.group_by("file_path").aggregate([("pos", "list")]).to_batches():
        for path, rows in zip(group["file_path"].to_pylist(), group["pos_list"], strict=True):
            yield path, rows.values.to_numpy()


def _read_vectors(file: DataFile) -> Iterable[tuple[str, NDArray[np.int64]]]:
    """Read a file of deletion vectors: yield the paths of data files, each with numbers of its rows."""
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
    from pyiceberg.table.puffin import PuffinFile

    with file.open() as raw:
        vectors = deletion_vectors_from_puffin_file(PuffinFile(raw.read()))
    for vector in vectors:
        yield vector.referenced_data_file, vector.to_vector().to_numpy().astype(np.int64)
