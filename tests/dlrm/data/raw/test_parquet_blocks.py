from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dlrm.config import CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.data.raw.typed.parquet import cut_parquet_blocks
from tests.dlrm.data.raw.plain import found, plain_rows, rows_of

MIB = 1 << 20
RANDOM = np.random.default_rng(0)
NUM_ROWS = 10_000


def many_numbers() -> tuple[pa.Table, SchemaConfig]:
    names = [f"x{number}" for number in range(300)]
    columns = {name: RANDOM.random(NUM_ROWS, dtype=np.float32) for name in names}
    return pa.table({"label": np.zeros(NUM_ROWS), "c": np.zeros(NUM_ROWS, dtype=np.int64), **columns}), SchemaConfig(
        dense=[DenseColumn(name=name) for name in names], categorical=[CategoricalColumn(name="c", type="integer")]
    )


def one_category(values: pa.Array, column: CategoricalColumn) -> tuple[pa.Table, SchemaConfig]:
    zeros = np.zeros(len(values))
    schema = SchemaConfig(dense=[DenseColumn(name="x")], categorical=[column])
    return pa.table({"label": zeros, "x": zeros, "c": values}), schema


def long_texts() -> tuple[pa.Table, SchemaConfig]:
    texts = pa.array([RANDOM.bytes(2000).hex() for _ in range(NUM_ROWS)])
    return one_category(texts, CategoricalColumn(name="c"))


def long_lists() -> tuple[pa.Table, SchemaConfig]:
    offsets = pa.array(np.arange(NUM_ROWS + 1) * 500, pa.int32())
    # Three values: the file is a small part of what it holds.
    lists = pa.ListArray.from_arrays(offsets, pa.array(RANDOM.integers(0, 3, NUM_ROWS * 500)))
    return one_category(lists, CategoricalColumn(name="c", type="integer", multi_hot=True))


CASES = pytest.mark.parametrize("case", [long_texts, long_lists], ids=lambda case: case.__name__)


@CASES
def test_memory_does_not_grow_with_the_row_group(
    tmp_path: Path, case: Callable[[], tuple[pa.Table, SchemaConfig]]
) -> None:
    table, schema = case()
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path)
    num_bytes = table.nbytes
    del table
    before, most, num_rows = pa.total_allocated_bytes(), 0, 0
    for block in cut_parquet_blocks(found(path), schema, block_bytes=MIB):
        most = max(most, pa.total_allocated_bytes() - before)
        num_rows += block.num_rows
    assert num_rows == NUM_ROWS
    assert most < num_bytes // 2


@pytest.mark.parametrize(
    ("case", "row_bytes"),
    [(many_numbers, 302 * 8), (long_texts, 4000), (long_lists, 4000)],
    ids=["many numbers", "long texts", "long lists"],
)
def test_a_block_has_fewer_rows_where_rows_are_large(
    tmp_path: Path, case: Callable[[], tuple[pa.Table, SchemaConfig]], row_bytes: int
) -> None:
    table, schema = case()
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path)
    sizes = [block.num_rows for block in cut_parquet_blocks(found(path), schema, block_bytes=MIB)]
    assert sum(sizes) == NUM_ROWS
    assert MIB / row_bytes / 2 < max(sizes) <= MIB / row_bytes
    assert {len(sizes)} == {-(-NUM_ROWS // max(sizes))}


def test_a_row_larger_than_a_block_is_a_block(tmp_path: Path) -> None:
    table, schema = one_category(pa.array(["a" * 100, "b" * 100]), CategoricalColumn(name="c"))
    parquet.write_table(table, tmp_path / "a.parquet")
    assert [block.num_rows for block in cut_parquet_blocks(found(tmp_path / "a.parquet"), schema, block_bytes=1)] == [
        1,
        1,
    ]


def test_texts_are_the_same_whether_the_file_writes_them_once_or_not(tmp_path: Path) -> None:
    values = pa.array([None if row % 5 == 0 else f"value {row % 7}" for row in range(1000)])
    table, schema = one_category(values, CategoricalColumn(name="c"))
    path = tmp_path / "a.parquet"
    found_rows = []
    for dictionary_bytes in (1, 1 << 20):
        parquet.write_table(table, path, row_group_size=600, dictionary_pagesize_limit=dictionary_bytes)
        found_rows.append(rows_of(cut_parquet_blocks(found(path), schema, block_bytes=2000)))
    assert found_rows[0] == found_rows[1]
    assert [row.categorical[0] for row in found_rows[0]] == values.to_pylist()


def test_names_with_dots_are_counted_in_a_row(tmp_path: Path) -> None:
    texts = pa.array(["a" * 1000, "b" * 1000] * 10)
    table, schema = one_category(texts, CategoricalColumn(name="c.d"))
    parquet.write_table(table.rename_columns(["label", "x", "c.d"]), tmp_path / "a.parquet", use_dictionary=False)
    (first, *others) = list(cut_parquet_blocks(found(tmp_path / "a.parquet"), schema, block_bytes=2500))
    assert first.num_rows == 2
    assert len(others) == 9
    assert [row.categorical for row in plain_rows(first.parse(False).table)] == [("a" * 1000,), ("b" * 1000,)]


@pytest.mark.parametrize("names", [["user", "user.id", "user.id.x"], ["user.id.x", "user.id", "user"]])
def test_a_column_named_like_the_path_of_a_struct_field_is_read(tmp_path: Path, names: list[str]) -> None:
    struct = pa.StructArray.from_arrays([pa.array([7, 8, 9]), pa.array(["s"] * 3)], ["id", "x"])
    columns = {"user": struct, "user.id": ["a", "b", "a"], "user.id.x": [0.5, 1.5, 2.5]}
    parquet.write_table(pa.table({"label": [0, 1, 1], **{name: columns[name] for name in names}}), tmp_path / "a")
    schema = SchemaConfig(
        dense=[DenseColumn(name="user.id.x", transform="none")], categorical=[CategoricalColumn(name="user.id")]
    )
    rows = rows_of(cut_parquet_blocks(found(tmp_path / "a"), schema))
    assert [(row.dense, row.categorical) for row in rows] == [((0.5,), ("a",)), ((1.5,), ("b",)), ((2.5,), ("a",))]
