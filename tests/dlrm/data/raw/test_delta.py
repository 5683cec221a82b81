"""Tables of Delta Lake, written by its own library, and read as that library reads them."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from dlrm.config import CategoricalColumn, DataConfig, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.files import find_files, find_splits
from dlrm.data.raw.tables.table import list_versions
from tests.dlrm.data.raw.delta_deletes import add_deletion_vector
from tests.dlrm.data.raw.plain import Row, plain_rows, tables_of
from tests.dlrm.data.raw.tables import count_rows, find_table, read_files


def make_rows(start: int, end: int) -> pa.Table:
    numbers = list(range(start, end))
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "label": [number % 2 for number in numbers],
            "place": [("x/y é", None, "a b=1")[number % 3] for number in numbers],
            "day": [date(2026, 11, 1 + number % 2) for number in numbers],
            "small": pa.array([number % 4 for number in numbers], pa.int8()),
        }
    )


@pytest.mark.parametrize("partition", [None, ["place"], ["day", "small", "place"]])
@pytest.mark.parametrize("mapping", ["none", "name"])
def test_the_rows_are_those_of_the_library(tmp_path: Path, partition: list[str] | None, mapping: str) -> None:
    path = tmp_path / "the table"
    options: dict[str, Any] = {"partition_by": partition}
    configuration = {"delta.columnMapping.mode": mapping, "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
    deltalake.write_deltalake(path, make_rows(0, 12), configuration=configuration, **options)
    assert count_rows(read_files(find_table(path))) == count_rows(make_rows(0, 12))
    deltalake.write_deltalake(path, make_rows(5, 30), mode="overwrite", **options)
    deltalake.write_deltalake(path, make_rows(30, 40), mode="append", **options)
    table = deltalake.DeltaTable(path)
    table.delete("id % 7 = 3")
    table.update({"label": "7"}, predicate="id = 12")
    if mapping == "none":
        wider = make_rows(40, 50).append_column("new", pa.array(["n"] * 10))
        deltalake.write_deltalake(path, wider, mode="append", schema_mode="merge", **options)
    table = deltalake.DeltaTable(path)
    files = find_table(path)
    read, expected = read_files(files), pa.table(table.scan())
    assert read.num_rows == expected.num_rows
    assert count_rows(read) == count_rows(expected)
    assert files[0].table.version == str(table.version())
    one_more = make_rows(0, 1).append_column("new", pa.array(["n"])) if mapping == "none" else make_rows(0, 1)
    deltalake.write_deltalake(path, one_more, mode="append", **options)
    assert read_files(find_table(path)).num_rows == expected.num_rows + 1
    # A job goes on with the version that it began with.
    before = find_files([str(path)], None, None, Path("/"), versions={str(path): files[0].table.version})
    assert [file.name for file in before] == [file.name for file in files]


def test_a_file_of_the_log_stands_for_its_version(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for start in range(0, 9, 3):
        deltalake.write_deltalake(path, make_rows(start, start + 3), mode="append")
    deltalake.DeltaTable(path).delete("id < 2")
    deltalake.DeltaTable(path).create_checkpoint()
    counts = [3, 6, 9, 7]
    for version, count in enumerate(counts):
        files = find_table(path / f"_delta_log/{version:020}.json")
        assert read_files(files).num_rows == count
    checkpoint = path / "_delta_log/00000000000000000003.checkpoint.parquet"
    assert read_files(find_table(checkpoint)).num_rows == 7
    # A version is pinned by its own name.
    named = find_table(path / "_delta_log/00000000000000000001.json")
    versions = list_versions([*named, *find_table(path)])
    assert list(versions.values()) == ["1", "3"]
    deltalake.write_deltalake(path, make_rows(9, 12), mode="append")
    for place, count in zip(versions, (6, 7), strict=True):
        assert read_files(find_files([place], None, None, Path("/"), versions=versions)).num_rows == count


@pytest.mark.parametrize(
    ("train", "evaluation"),
    [(["t"], ["v1"]), (["v1"], ["t"]), (["v1", "t"], ["other"]), (["t", "v1"], ["other"]), (["v2", "t"], ["other"])],
)
def test_a_table_is_read_at_one_version_and_by_one_name(
    tmp_path: Path, train: list[str], evaluation: list[str]
) -> None:
    for start in (0, 3):
        deltalake.write_deltalake(tmp_path / "t", make_rows(start, start + 3), mode="append")
    # Afterwards no file of the table is one of version 1.
    deltalake.DeltaTable(tmp_path / "t").optimize.compact()
    deltalake.write_deltalake(tmp_path / "other", make_rows(0, 3))
    for version in (1, 2):
        (tmp_path / f"v{version}").symlink_to(tmp_path / f"t/_delta_log/{version:020}.json")
    with pytest.raises(DataError, match=r"data\.(train\.1|eval): is version [12] of a table that is also read at .*/t"):
        find_splits(DataConfig(train=train, eval=evaluation), None, tmp_path)
    for files in find_splits(DataConfig(train=["t", "t"], eval=["other"]), None, tmp_path):
        assert len(files) == 1


def test_rows_of_deletion_vectors_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a b"
    configuration = {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(path, make_rows(0, 30), partition_by=["place"], configuration=configuration)
    whole = find_table(path)
    for file in whole[:2]:
        name = file.name.replace("%", "%25").replace(" ", "%20")
        add_deletion_vector(path, name, [0, 4, 9])
    files = find_table(path)
    read = read_files(files)
    assert read.num_rows == 24
    assert count_rows(read) == count_rows(pa.table(deltalake.DeltaTable(path).scan()))
    assert [file.name for file in files] == [file.name for file in whole]
    # Files of the same bytes have other rows.
    assert [a.get_context(["id"]) == b.get_context(["id"]) for a, b in zip(files, whole, strict=True)] == [False] * 3


def test_values_of_partitions_are_columns_of_their_type(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "label": [0, 1, 1],
            "moment": pa.array([datetime(2026, 11, 27, 5, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
            "user": pa.array([7, None, 2**40], pa.int64()),
        }
    )
    deltalake.write_deltalake(tmp_path / "t", rows, partition_by=["user", "moment"])
    hour = CategoricalColumn(name="moment", time_part="hour")
    schema = SchemaConfig(dense=[], categorical=[CategoricalColumn(name="user", type="integer"), hour])
    config = DataConfig(train=["t"], format="parquet", schema=schema)
    files = find_table(tmp_path / "t")
    read = [row for table in tables_of(config, files) for row in plain_rows(table)]
    assert sorted(read, key=str) == sorted(
        [Row(0.0, None, (), (7, 5)), Row(1.0, None, (), (None, 5)), Row(1.0, None, (), (2**40, 5))], key=str
    )


def test_a_file_outside_the_data_roots_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data/t"
    deltalake.write_deltalake(path, make_rows(0, 4))
    (file,) = find_table(path)
    (tmp_path / "secret.parquet").write_bytes(Path(file.name).read_bytes())
    Path(file.name).unlink()
    with pytest.raises(DataError, match="names a file that cannot be read"):
        find_table(path)
    Path(file.name).symlink_to(tmp_path / "secret.parquet")
    assert find_table(path)[0].num_bytes
    with pytest.raises(DataError, match="is outside the data roots"):
        find_files(["t"], "data.train", [str(tmp_path / "data")], tmp_path / "data")
    log = next((path / "_delta_log").glob("*.json"))
    log.write_text(log.read_text().replace(Path(file.name).name, "..%2F..%2Fsecret.parquet"))
    with pytest.raises(DataError, match="is outside the data roots"):
        find_files(["t"], "data.train", [str(tmp_path / "data")], tmp_path / "data")
    (tmp_path / "secret.json").write_text("secret")
    log.unlink()
    log.symlink_to(tmp_path / "secret.json")
    with pytest.raises(DataError, match="is outside the data roots"):
        find_files(["t"], "data.train", [str(tmp_path / "data")], tmp_path / "data")


def test_a_column_that_a_file_lacks_is_missing_there(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", make_rows(0, 3).select(["label", "id"]))
    deltalake.write_deltalake(tmp_path / "t", make_rows(3, 5), mode="append", schema_mode="merge")
    dense = [DenseColumn(name="small", transform="none")]
    schema = SchemaConfig(dense=dense, categorical=[CategoricalColumn(name="place")])
    config = DataConfig(train=["t"], format="parquet", schema=schema)
    read = [row for table in tables_of(config, find_table(tmp_path / "t")) for row in plain_rows(table)]
    none = (None,)
    assert read == [Row(float(n % 2), None, none, none) for n in range(3)] + [
        Row(1.0, None, (3.0,), ("x/y é",)),
        Row(0.0, None, (0.0,), (None,)),
    ]
