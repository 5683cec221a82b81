"""Arrow IPC files and streams: the same rows as Parquet with the same table."""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from dlrm.config import SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.typed.arrow import cut_arrow_blocks
from dlrm.data.raw.typed.parquet import cut_parquet_blocks
from tests.dlrm.data.raw.plain import found, good_rows_of, rows_of

ROWS = 120
GENERATOR = random.Random(0)
TABLE = pa.table(
    {
        "unused": ["x"] * ROWS,
        "label": [GENERATOR.randrange(2) for _ in range(ROWS)],
        "x": [GENERATOR.choice([None, 0.5, float("nan"), 3.0]) for _ in range(ROWS)],
        "id": pa.array([GENERATOR.choice([None, 2**53 + 1, 7]) for _ in range(ROWS)], pa.int64()),
        "site": pa.array([GENERATOR.choice([None, "a", "é", ""]) for _ in range(ROWS)]).dictionary_encode(),
        "tags": [GENERATOR.choice([None, [], ["p"], ["p", None]]) for _ in range(ROWS)],
    }
)
SCHEMA = SchemaConfig.model_validate(
    {
        "dense": [{"name": "x"}],
        "categorical": [
            {"name": "id", "type": "integer"},
            {"name": "site"},
            {"name": "tags", "multi_hot": True},
        ],
    }
)


def write(path: Path, kind: str, table: pa.Table, batch_rows: int, compression: str | None) -> None:
    options = ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=kind == "stream")
    opened = ipc.new_stream if kind == "stream" else ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, opened(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize(("batch_rows", "compression"), [(1, None), (50, "lz4"), (ROWS, "zstd")])
def test_rows_are_those_of_parquet_whatever_the_batches(
    tmp_path: Path, kind: str, batch_rows: int, compression: str | None
) -> None:
    write(tmp_path / "rows", kind, TABLE, batch_rows, compression)
    parquet.write_table(TABLE, tmp_path / "parquet")
    expected = rows_of(cut_parquet_blocks(found(tmp_path / "parquet"), SCHEMA))
    for block_rows, block_bytes in ((7, 1 << 20), (1 << 17, 1), (1 << 17, 1 << 20)):
        blocks = list(cut_arrow_blocks(found(tmp_path / "rows"), SCHEMA, block_rows, block_bytes))
        assert rows_of(blocks) == expected
        assert max(block.num_rows for block in blocks) <= block_rows
        assert sum(block.num_bytes for block in blocks) <= (tmp_path / "rows").stat().st_size


def test_views_of_polars_are_read(tmp_path: Path) -> None:
    frame = pl.DataFrame(TABLE).with_columns(pl.col("site").cast(pl.Categorical))
    frame.with_columns(pl.col("tags").cast(pl.List(pl.Categorical))).write_ipc_stream(tmp_path / "rows")
    parquet.write_table(TABLE, tmp_path / "parquet")
    blocks = cut_arrow_blocks(found(tmp_path / "rows"), SCHEMA)
    assert rows_of(blocks) == rows_of(cut_parquet_blocks(found(tmp_path / "parquet"), SCHEMA))


def test_a_bad_row_is_named_by_its_number(tmp_path: Path) -> None:
    labels: list[Any] = [0, 1] * 50
    labels[76] = None
    table = pa.table({"label": labels, "x": [1.0] * 100})
    write(tmp_path / "rows", "file", table, 30, None)
    schema = SchemaConfig.model_validate({"dense": [{"name": "x"}]})
    with pytest.raises(DataError, match="line 77, label: the label is missing"):
        rows_of(cut_arrow_blocks(found(tmp_path / "rows"), schema))
    assert sum(good_rows_of(cut_arrow_blocks(found(tmp_path / "rows"), schema))[1]) == 99
    schema = SchemaConfig.model_validate({"dense": [{"name": "y"}]})
    with pytest.raises(DataError, match="y: there is no such column"):
        rows_of(cut_arrow_blocks(found(tmp_path / "rows"), schema))


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_damaged_file_is_one_error_or_other_rows(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "whole", kind, TABLE, 80, "lz4")
    content = (tmp_path / "whole").read_bytes()
    generator = random.Random(1)
    for trial in range(150):
        damaged = bytearray(content)
        if trial % 3:
            for _ in range(generator.randrange(1, 20)):
                damaged[generator.randrange(16, len(damaged))] = generator.randrange(256)
        else:
            damaged = damaged[: generator.randrange(20, len(damaged))]
        (tmp_path / "rows").write_bytes(damaged)
        with suppress(DataError):
            for block in cut_arrow_blocks(found(tmp_path / "rows"), SCHEMA):
                block.parse(True)
