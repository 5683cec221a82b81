"""Files of one snapshot of an Iceberg table, by its metadata, with the deletes that apply to each file.

Which deletes apply to which file is said in "Scan Planning" of Iceberg's specification.
"""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NoReturn, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, read_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform

from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.tables.table import (
    METADATA,
    EqualityDelete,
    TableColumn,
    TableDirectory,
    TableFile,
    TableVersion,
    sort_files,
)

_FOLDER, _HINT, _SNAPSHOT = "metadata", "version-hint.text", "snap-"
_NUMBER = re.compile(r"v?(\d+)")


class IcebergSnapshot:
    """A snapshot of a table, with the schema that it is read by."""

    def __init__(self, directory: TableDirectory, metadata: TableMetadata, version: str | None) -> None:
        """Choose a snapshot of a table: the one of `version`, else the one whose file was named, else the present one.

        Raises DataError if it is gone.
        """
        self._directory, self.metadata = directory, metadata
        file = directory.version_file or ""
        if version is None and file.startswith(_SNAPSHOT):
            snapshot = next((one for one in metadata.snapshots if one.manifest_list.endswith(f"/{file}")), None)
            if snapshot is None:
                message = f"has no snapshot with the file {file} any more"
                raise directory.make_error(message, "a snapshot that the table keeps")
            schema_id = metadata.current_schema_id if snapshot.schema_id is None else snapshot.schema_id
        elif version is None:
            snapshot, schema_id = metadata.current_snapshot(), metadata.current_schema_id
        else:
            number, schema = version.split("/")
            snapshot, schema_id = metadata.snapshot_by_id(int(number)), int(schema)
            if snapshot is None:
                raise directory.make_error(f"has no snapshot {number} any more", "a table that keeps its snapshots")
        self._snapshot = snapshot
        self.schema: Schema = metadata.schema_by_id(schema_id) or metadata.schema()
        number = f"{snapshot.snapshot_id if snapshot else 0}/{schema_id}"
        self.version = TableVersion(directory.name, directory.place, number)

    def find(self, name: str) -> DataFile:
        """Find a file by its name in the metadata. A table that was copied or moved has it in its own directory."""
        place, name = self.metadata.location.removeprefix("./").rstrip("/"), name.removeprefix("./")
        is_inside = name.startswith(f"{place}/")
        return self._directory.find(f"{self._directory.name}{name.removeprefix(place)}" if is_inside else name)

    def list_entries(self) -> list[ManifestEntry]:
        """List all data files and files of deletes. Raises exceptions of the library if a manifest is damaged."""
        if self._snapshot is None:
            return []
        files = _Files(self)
        manifests = read_manifest_list(files.new_input(self._snapshot.manifest_list))
        return [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(files)]

    def find_key(self, field_id: int) -> TableColumn:
        """Find a column by whose values rows are deleted; it may have left the schema. Raises DataError for a field of
        a struct."""
        if field_id not in self._names:
            message = "deletes rows by the values of a field of a struct, which is not supported"
            raise self._directory.make_error(message, "files with a copy of its present rows")
        return TableColumn(self._names[field_id], (self._names[field_id],), field_id)

    @cached_property
    def _names(self) -> dict[int, str]:
        schemas = [*self.metadata.schemas, self.schema]
        return {field.field_id: field.name for schema in schemas for field in schema.fields}


def _find_present(directory: TableDirectory) -> str:
    """Find the file with the present metadata: the one that a hint names, or the one with the highest number."""
    names = [name for name in directory.list_names(_FOLDER) if METADATA.fullmatch(name)]
    by_number: dict[int, list[str]] = defaultdict(list)
    for name in names:
        if number := _NUMBER.match(name):
            by_number[int(number[1])].append(name)
    hint = _read(directory, _HINT).decode().strip() if _HINT in names else ""
    if hint and not hint.isdecimal():
        return hint if hint.endswith(".metadata.json") else f"{hint}.metadata.json"
    present = int(hint) if hint else max(by_number)
    # A hint is written after the metadata, and may be late.
    while present + 1 in by_number:
        present += 1
    if len(by_number[present]) != 1:
        found = " and ".join(sorted(by_number[present])) or f"none with the number {present} of {_HINT}"
        valid = "the name of the one that counts, as a file of its own: TABLE/metadata/NAME.metadata.json"
        raise directory.make_error(f"is a table of Iceberg whose present metadata is not clear: {found}", valid)
    return by_number[present][0]


def _read(directory: TableDirectory, name: str) -> bytes:
    with directory.find(f"{directory.name}/{_FOLDER}/{name}").open() as raw:
        return raw.read()


class _Files(FileIO):
    """Files of a table for the library, which thereby keep to the data roots and the credentials of stores."""

    def __init__(self, snapshot: IcebergSnapshot) -> None:
        super().__init__({})
        self._snapshot = snapshot

    def new_input(self, location: str) -> InputFile:
        return _Input(location, self._snapshot.find(location))

    def new_output(self, location: str) -> NoReturn:
        raise PermissionError(f"{location}: tables are only read")

    def delete(self, location: object) -> NoReturn:
        raise PermissionError(f"{location}: tables are only read")


class _Input(InputFile):
    """A file of a table for the library."""

    def __init__(self, location: str, file: DataFile) -> None:
        super().__init__(location)
        self._file = file

    def __len__(self) -> int:
        return self._file.num_bytes

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, every file is seekable
        return cast(InputStream, self._file.open())


def list_iceberg_files(directory: TableDirectory, version: str | None) -> list[TableFile]:
    """List the files of a version of a table; version None is the one that was named, else the present one.

    Raises DataError if a file is missing, is not Parquet or is outside the data roots, and if no or more than one file
    of metadata may be the present one; and exceptions of the library.
    """
    named = directory.version_file
    if named is None or named.startswith(_SNAPSHOT):
        named = _find_present(directory)
    text = _read(directory, named)
    metadata = TableMetadataUtil.parse_raw((gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text).decode())
    snapshot = IcebergSnapshot(directory, metadata, version)
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


def _list_columns(snapshot: IcebergSnapshot) -> list[TableColumn]:
    """List the columns of a table. Files that were not written for Iceberg have no ids, but a mapping of names."""
    mapping: dict[int, tuple[str, ...]] = {
        field["field-id"]: tuple(field["names"])
        for field in json.loads(snapshot.metadata.properties.get("schema.name-mapping.default", "[]"))
        if "field-id" in field
    }
    fields = snapshot.schema.fields
    return [TableColumn(field.name, mapping.get(field.field_id, (field.name,)), field.field_id) for field in fields]


def _list_constants(snapshot: IcebergSnapshot, entry: ManifestEntry) -> Mapping[str, pa.Scalar]:
    """List the values of columns that the file may lack: its partition's values, and defaults of later columns."""
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

    def __init__(self, snapshot: IcebergSnapshot, entries: Iterable[ManifestEntry]) -> None:
        """Read the positions of deleted rows; rows that are deleted by their values are found when they are read."""
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

    def find_rows(self, entry: ManifestEntry) -> NDArray[np.int64]:
        """Find the numbers of the rows of a data file that are deleted by their position."""
        path, written = entry.data_file.file_path, entry.sequence_number or 0
        # A deletion vector has all that files of positions have deleted before.
        found = self._vectors.get(path) or [rows for number, rows in self._positions.get(path, ()) if number >= written]
        return np.unique(np.concatenate([*found, np.empty(0, dtype=np.int64)]))

    def find_equality_deletes(self, entry: ManifestEntry) -> tuple[EqualityDelete, ...]:
        """Find the files that may delete rows of a data file by their values."""
        written, partition = entry.sequence_number or 0, (entry.data_file.spec_id, entry.data_file.partition)

        def applies(delete: ManifestEntry) -> bool:
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
    with file.open() as raw:
        vectors = deletion_vectors_from_puffin_file(PuffinFile(raw.read()))
    for vector in vectors:
        yield vector.referenced_data_file, vector.to_vector().to_numpy().astype(np.int64)
