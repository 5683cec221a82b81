"""Commits that delete rows of an Iceberg table by position or by value, which its Python library does not write."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.typedef import Record


@dataclass
class Delete:
    """A file of deletes: rows that equal one of `rows` in the columns `equality_ids`, or at the positions in `rows`."""

    rows: pa.Table
    equality_ids: list[int] | None = None
    spec_id: int = 0
    """Partition spec whose partition the deletes are for."""
    partition: Sequence[Any] = field(default_factory=list)


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_rows(table: Table, deletes: Sequence[Delete]) -> Path:
    """Commit `deletes` on top of the present snapshot; return the file with the new metadata."""
    metadata = table.metadata
    present = metadata.current_snapshot()
    assert present is not None
    number, snapshot_id = metadata.last_sequence_number + 1, present.snapshot_id + 1
    manifests = present.manifests(table.io)
    for index, delete in enumerate(deletes):
        path = f"{table.location()}/data/{number}-{index}-deletes.parquet"
        local = Path(path.removeprefix("file://"))
        parquet.write_table(delete.rows, local)
        spec = metadata.specs()[delete.spec_id] if delete.partition else UNPARTITIONED_PARTITION_SPEC
        content = DataFileContent.EQUALITY_DELETES if delete.equality_ids else DataFileContent.POSITION_DELETES
        file = DataFile.from_args(
            content=content,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(*delete.partition),
            record_count=delete.rows.num_rows,
            file_size_in_bytes=local.stat().st_size,
            equality_ids=delete.equality_ids,
        )
        file.spec_id = delete.spec_id
        output = table.io.new_output(f"{table.location()}/metadata/{number}-{index}-m.avro")
        with _DeletesWriter(spec, table.schema(), output, snapshot_id, "deflate") as writer:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, sequence_number=None, data_file=file
            )
            writer.add_entry(entry)
        manifests.append(writer.to_manifest_file())
    listing = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
    output = table.io.new_output(listing)
    with write_manifest_list(2, output, snapshot_id, present.snapshot_id, number, "deflate") as lister:
        lister.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=present.snapshot_id,
        sequence_number=number,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=listing,
        summary=Summary(Operation.DELETE),
        schema_id=metadata.current_schema_id,
    )
    changed = metadata.model_copy(
        update={
            "snapshots": [*metadata.snapshots, snapshot],
            "current_snapshot_id": snapshot_id,
            "last_sequence_number": number,
            "refs": {},
        }
    )
    place = Path(table.metadata_location.removeprefix("file://"))
    target = place.with_name(f"{int(place.name.split('-')[0]) + 1:05}-deletes.metadata.json")
    target.write_text(changed.model_dump_json(by_alias=True, exclude_none=True))
    return target
