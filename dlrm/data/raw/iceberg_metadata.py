"""Metadata of a table of Iceberg: which file of it counts, and the snapshot, schema and manifests that it names."""

import gzip
import re
from collections import defaultdict
from functools import cached_property
from typing import NoReturn, cast

from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import ManifestEntry, read_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.table_directory import TableDirectory
from dlrm.data.raw.table_file import TableColumn, TableVersion
from dlrm.data.raw.table_logs import METADATA

_FOLDER, _HINT = "metadata", "version-hint.text"
_NUMBER = re.compile(r"v?(\d+)")


class IcebergSnapshot:
    """A snapshot of a table, with the schema that it is read by."""

    def __init__(self, directory: TableDirectory, metadata: TableMetadata, version: str | None) -> None:
        """Choose a snapshot of a table, the present one if `version` is None. Raises DataError if it is gone."""
        self._directory, self.metadata = directory, metadata
        if version is None:
            snapshot, schema_id = metadata.current_snapshot(), metadata.current_schema_id
        else:
            number, schema = version.split("/")
            snapshot, schema_id = metadata.snapshot_by_id(int(number)), int(schema)
            if snapshot is None:
                raise directory.make_error(f"has no snapshot {number} any more", "a table that keeps its snapshots")
        self._snapshot = snapshot
        self.schema: Schema = metadata.schema_by_id(schema_id) or metadata.schema()
        self.version = TableVersion(directory.name, f"{snapshot.snapshot_id if snapshot else 0}/{schema_id}")

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
        """Find a column by whose values rows are deleted, which may have left the schema. Raises DataError for a field
        of a struct."""
        if field_id not in self._names:
            message = "deletes rows by the values of a field of a struct, which is not supported"
            raise self._directory.make_error(message, "files with a copy of its present rows")
        return TableColumn(self._names[field_id], (self._names[field_id],), field_id)

    @cached_property
    def _names(self) -> dict[int, str]:
        schemas = [*self.metadata.schemas, self.schema]
        return {field.field_id: field.name for schema in schemas for field in schema.fields}


def open_snapshot(directory: TableDirectory, version: str | None) -> IcebergSnapshot:
    """Open a snapshot of a table, the present one if `version` is None.

    Raises DataError if no or more than one file of metadata may be the present one, and exceptions of the library.
    """
    named = directory.metadata_name
    text = _read(directory, named or _find_present(directory))
    metadata = TableMetadataUtil.parse_raw((gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text).decode())
    return IcebergSnapshot(directory, metadata, None if named else version)


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
