"""Tables of Iceberg, written by its own library, and read as that library reads them."""

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import IdentityTransform, MonthTransform
from pyiceberg.types import LongType, StringType

from dlrm.data.errors import DataError
from dlrm.data.raw.files import find_files
from dlrm.data.raw.tables.table import list_versions
from tests.dlrm.data.raw.iceberg_deletes import Delete, delete_rows
from tests.dlrm.data.raw.tables import count_rows, find_table, read_files

START = datetime(2026, 11, 27, tzinfo=UTC)


def make_rows(start: int, end: int) -> pa.Table:
    numbers = list(range(start, end))
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "place": pa.array([("x/y é", None, "a b=1")[number % 3] for number in numbers], pa.string()),
            "day": [date(2026, 11, 1 + number % 2) for number in numbers],
            "seen": pa.array([START] * len(numbers), pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture
def create(tmp_path: Path) -> Callable[[str], Table]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("n")

    def create_table(partition: str = "none") -> Table:
        table = catalog.create_table("n.t", schema=make_rows(0, 1).schema, properties={"format-version": "2"})
        with table.update_spec() as spec:
            if partition == "identity":
                spec.add_identity("place").add_identity("day")
            elif partition == "month":
                spec.add_field("day", MonthTransform())
        return table

    return create_table


def get_place(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


@pytest.mark.parametrize("partition", ["none", "identity"])
def test_the_rows_are_those_of_the_library(create: Callable[[str], Table], partition: str, tmp_path: Path) -> None:
    table = create(partition)
    table.append(make_rows(0, 9))
    table.overwrite(make_rows(3, 30))
    table.append(make_rows(30, 40))
    table.delete(EqualTo("id", 7))
    table.delete("id > 35 or id = 12")
    table.overwrite(make_rows(0, 3), overwrite_filter="day = '2026-11-02'")
    with table.update_schema() as changed:
        changed.update_column("id", LongType())
        changed.rename_column("seen", "at")
    with table.update_schema() as changed:
        # A new column of an old name is another one.
        changed.add_column("seen", StringType())
        changed.move_first("seen")
    # Places of partitions may change as well.
    with table.update_spec() as spec:
        spec.add_field("seen", IdentityTransform())
    added = make_rows(50, 60).rename_columns(["id", "place", "day", "at"]).append_column("seen", pa.array(["s"] * 10))
    table.append(added)
    files, expected = find_table(get_place(table)), table.scan().to_arrow()
    read = read_files(files)
    assert read.num_rows == expected.num_rows > 0
    assert count_rows(read) == count_rows(expected)
    # A copy has its files in itself, wherever its metadata says.
    shutil.copytree(get_place(table), tmp_path / "a copy")
    copied = find_table(tmp_path / "a copy")
    assert {Path(file.name).is_relative_to(tmp_path / "a copy") for file in copied} == {True}
    # A job goes on with the version that it began with.
    table.append(added.slice(0, 1))
    place = str(get_place(table))
    before = find_files([place], None, None, Path("/"), versions={place: files[0].table.version})
    assert [file.name for file in before] == [file.name for file in files]
    assert read_files(find_table(place)).num_rows == expected.num_rows + 1


def test_files_that_were_not_written_for_iceberg_are_read_by_the_names_of_their_columns(
    create: Callable[[str], Table], tmp_path: Path
) -> None:
    table = create("month")
    parquet.write_table(make_rows(0, 5), tmp_path / "old.parquet")
    table.add_files([str(tmp_path / "old.parquet")])
    with table.update_schema() as changed:
        changed.rename_column("place", "spot")
    read = read_files(find_table(get_place(table)))
    assert read.schema.names == ["id", "spot", "day", "seen"]
    assert count_rows(read) == count_rows(table.scan().to_arrow())


def test_rows_deleted_by_position_are_not_read(create: Callable[[str], Table]) -> None:
    table = create("identity")
    table.append(make_rows(0, 30))
    spec_id = table.metadata.default_spec_id
    deletes: list[Delete] = []
    for task, rows in zip(table.scan().plan_files(), ([0, 4], [1, 3], [3]), strict=False):
        path = task.file.file_path
        positions = pa.table({"file_path": [path] * len(rows) + ["file:///elsewhere"], "pos": [*rows, 2]})
        deletes.append(Delete(positions, None, spec_id, [*task.file.partition]))
    deletes.append(deletes[0])
    metadata = delete_rows(table, deletes)
    expected = StaticTable.from_metadata(str(metadata)).scan().to_arrow()
    files = find_table(get_place(table))
    assert expected.num_rows == 25
    assert count_rows(read_files(files)) == count_rows(expected)
    before = find_table(table.metadata_location.removeprefix("file://"))
    assert read_files(before).num_rows == 30
    assert [a.get_context(["id"]) == b.get_context(["id"]) for a, b in zip(files, before, strict=True)] == [False] * 6


def test_rows_deleted_by_their_values_are_not_read_unless_they_were_written_later(
    create: Callable[[str], Table],
) -> None:
    table = create("none")
    table.append(make_rows(0, 12))
    with table.update_schema() as changed:
        changed.update_column("id", LongType())
        changed.rename_column("place", "spot")
    later = pa.table({"id": pa.array([2, 5, 99])})
    # Missing values are equal: rows 1, 4, 7 and 10 have no place, and an even day if their number is even.
    missing = pa.table({"spot": pa.array([None, "x/y é"]), "day": [date(2026, 11, 1), date(2026, 11, 9)]})
    add_ids = [(later, [1]), (missing, [2, 3])]
    deletes = [Delete(with_ids(rows, ids), ids) for rows, ids in add_ids]
    metadata = delete_rows(table, deletes)
    read = read_files(find_table(get_place(table)))
    assert sorted(read["id"].to_pylist()) == [0, 1, 3, 6, 7, 8, 9, 11]
    assert [file.table.version for file in find_table(metadata)] == [
        file.table.version for file in find_table(get_place(table))
    ]


def with_ids(rows: pa.Table, ids: list[int]) -> pa.Table:
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)}) for field, number in zip(rows.schema, ids, strict=True)
    ]
    return rows.cast(pa.schema(fields))


def test_deletes_by_value_are_for_older_files_of_their_partition_alone(create: Callable[[str], Table]) -> None:
    table = create("identity")
    table.append(make_rows(0, 12))
    spec_id = table.metadata.default_spec_id
    rows = with_ids(pa.table({"id": pa.array(range(4), pa.int32())}), [1])
    day = (date(2026, 11, 1) - date(1970, 1, 1)).days
    delete_rows(table, [Delete(rows, [1], spec_id, ["x/y é", day])])
    read = read_files(find_table(get_place(table)))
    # Of rows 0 to 3, row 0 alone is in that partition.
    assert sorted(read["id"].to_pylist()) == list(range(1, 12))


def test_the_list_of_a_snapshot_stands_for_it_with_the_columns_of_then(create: Callable[[str], Table]) -> None:
    table = create("none")
    table.append(make_rows(0, 3))
    with table.update_schema() as changed:
        changed.rename_column("place", "spot")
    table.overwrite(make_rows(3, 5).rename_columns(["id", "spot", "day", "seen"]))
    first = table.snapshots()[0]
    listing = Path(first.manifest_list.removeprefix("file://"))
    assert listing.name.startswith("snap-")
    files = find_table(listing)
    read = read_files(files)
    assert count_rows(read) == count_rows(table.scan(snapshot_id=first.snapshot_id).to_arrow())
    assert (read.num_rows, read.schema.names[1]) == (3, "place")
    place = str(get_place(table))
    versions = list_versions([*find_table(place), *files])
    assert [*versions] == [place, str(listing)]
    # The pin of the whole table is none of the snapshot.
    for name, count in ((place, 2), (str(listing), 3)):
        assert read_files(find_files([name], None, None, Path("/"), versions=versions)).num_rows == count
    listing.rename(listing.with_name("snap-1-0.avro"))
    with pytest.raises(DataError, match=r"has no snapshot with the file snap-1-0.avro"):
        find_table(listing.with_name("snap-1-0.avro"))


@pytest.mark.parametrize("hint", ["2", "1", "00002-b", ""])
def test_the_newest_metadata_counts_unless_a_hint_names_another(create: Callable[[str], Table], hint: str) -> None:
    table = create("none")
    table.append(make_rows(0, 3))
    first = Path(table.metadata_location.removeprefix("file://"))
    table.append(make_rows(3, 5))
    second = Path(table.metadata_location.removeprefix("file://"))
    folder = first.parent
    contents = first.read_bytes(), second.read_bytes()
    for path in folder.glob("*.metadata.json"):
        path.unlink()
    names = (
        ("00001-a.metadata.json", "00002-b.metadata.json")
        if not hint.isdigit()
        else ("v1.metadata.json", "v2.metadata.json")
    )
    for name, content in zip(names, contents, strict=True):
        (folder / name).write_bytes(content)
    if hint:
        (folder / "version-hint.text").write_text(hint)
    assert read_files(find_table(get_place(table))).num_rows == 5
    assert read_files(find_table(folder / names[0])).num_rows == 3
    if not hint:
        (folder / "00002-c.metadata.json").write_bytes(contents[0])
        with pytest.raises(DataError, match=r"whose present metadata is not clear: 00002-b.metadata.json and 00002-c"):
            find_table(get_place(table))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ('{"format-version":2,"location":"data/tbl"}', "log cannot be read: 1 validation error .* Field required"),
        ("", "log cannot be read"),
        ('{"format-version": 9}', "log cannot be read"),
    ],
)
def test_damaged_metadata_is_told_in_one_sentence(tmp_path: Path, metadata: str, message: str) -> None:
    (tmp_path / "t/metadata").mkdir(parents=True)
    (tmp_path / "t/metadata/v2.metadata.json").write_text(metadata)
    with pytest.raises(DataError, match=f"/t, data.train.0: is a table of Iceberg whose {message}") as raised:
        find_table(tmp_path / "t")
    assert "\n" not in str(raised.value)


def test_no_file_outside_the_data_roots_is_read(create: Callable[[str], Table], tmp_path: Path) -> None:
    table = create("none")
    table.append(make_rows(0, 3))
    place = get_place(table)
    inside = [str(place.parent)]
    assert len(find_files([str(place)], "data.train", inside, Path("/"))) == 1
    newest = max((place / "metadata").glob("*.metadata.json"))
    manifests = next((place / "metadata").glob("snap-*.avro"))
    (tmp_path / "elsewhere.avro").write_bytes(manifests.read_bytes())
    newest.write_text(newest.read_text().replace(str(manifests), str(tmp_path / "elsewhere.avro")))
    assert len(find_table(place)) == 1
    with pytest.raises(DataError, match=r"elsewhere.avro, data.train.0: is outside the data roots"):
        find_files([str(place)], "data.train", inside, Path("/"))


def test_a_table_without_rows_is_refused(create: Callable[[str], Table]) -> None:
    with pytest.raises(DataError, match="is a table of Iceberg that has no rows"):
        find_table(get_place(create("none")))
