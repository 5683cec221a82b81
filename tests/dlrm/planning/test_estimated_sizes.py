"""Sizes of tables by a sample of rows that nobody has prepared."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dlrm.config import JobConfig, resolve
from dlrm.data.errors import DataError
from dlrm.data.raw import data_file
from dlrm.planning import raw_sample
from dlrm.planning.estimated_sizes import SeenValues, estimate_num_values, estimate_sizes
from dlrm.planning.raw_sample import read_sample
from dlrm.planning.sizes import Sizes, UnknownSizesError
from dlrm.planning.table_sizes import find_table_sizes
from dlrm.record import ModelRecord
from tests.bucket.server import Bucket

pytest_plugins = ["tests.bucket.fixtures"]

NUM_ROWS = 400_000
Draw = Callable[[np.random.Generator], np.ndarray]


def draw_zipf(draw: np.random.Generator) -> np.ndarray:
    weights = 1 / np.arange(1, 300_001)
    return draw.choice(300_000, NUM_ROWS, p=weights / weights.sum())


COLUMNS: dict[str, Draw] = {
    "few": lambda draw: draw.integers(0, 100, NUM_ROWS),
    "zipf": draw_zipf,
    "unique": lambda draw: draw.permutation(NUM_ROWS),
    "sorted": lambda _: np.repeat(np.arange(NUM_ROWS // 8), 8),
}


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    draw = np.random.default_rng(0)
    columns = {name: make(draw) for name, make in COLUMNS.items()}
    price = np.where(np.arange(NUM_ROWS) % 7 == 0, np.nan, 1.5)
    return pl.DataFrame({"label": draw.integers(0, 2, NUM_ROWS), "price": price, **columns})


@pytest.fixture(scope="module")
def directory(rows: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rows")
    rows.write_parquet(directory / "rows.parquet", row_group_size=20_000)
    rows.with_columns(pl.col("price").fill_nan(None)).write_csv(directory / "rows.csv")
    (directory / "rows.csv.gz").write_bytes(gzip.compress((directory / "rows.csv").read_bytes(), 1))
    return directory


@pytest.fixture(autouse=True)
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_sample, "MAX_ROWS", 20_000)


def make_data(path: Path, min_count: int = 2, **changes: Any) -> dict[str, Any]:
    schema = {"dense": [{"name": "price"}], "categorical": [{"name": name, "type": "integer"} for name in COLUMNS]}
    kind = "parquet" if path.suffix == ".parquet" else "csv"
    data = {"train": [str(path)], "format": kind, "schema": schema, "vocabulary": {"min_count": min_count}}
    return {**data, "eval_fraction": 0.01, **changes}


def estimate(data: dict[str, Any]) -> Sizes:
    return estimate_sizes(resolve(JobConfig.model_validate({"data": data})))


def read_no_source() -> ModelRecord:
    raise AssertionError("there is no warm start")


def test_a_store_that_fails_leaves_the_sizes_unknown_for_a_plan_of_other_machines(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.write("rows.csv", b"label,price,few,zipf,unique,sorted\n1,2.5,1,1,1,1\n")

    def fail(_: str) -> None:
        raise OSError("AWS Error NETWORK_CONNECTION during HeadObject operation")

    monkeypatch.setattr(data_file, "open_object", fail)
    document = {"data": {**make_data(Path("rows.csv")), "train": ["s3://bucket/rows.csv"]}}
    resolved = resolve(JobConfig.model_validate(document), ["s3://bucket"], data_cache="cache")
    with pytest.raises(
        UnknownSizesError, match=r"by workers \(s3://bucket/rows\.csv: reading failed: AWS Error NETWORK"
    ):
        find_table_sizes(resolved, None, "unseen", read_no_source)
    with pytest.raises(OSError, match="reading failed"):
        find_table_sizes(resolved, None, "here", read_no_source)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.csv.gz"])
@pytest.mark.parametrize("min_count", [1, 2])
def test_tables_are_estimated_from_a_twentieth_of_the_rows(
    name: str, min_count: int, rows: pl.DataFrame, directory: Path
):
    sizes = estimate(make_data(directory / name, min_count))
    assert sizes.estimated_from is not None
    assert sizes.source.startswith("an estimate: ")
    # One more dense feature marks where the price is missing.
    assert sizes.num_dense == 2
    by_name = {table.name: table.num_rows - 2 for table in sizes.tables}
    for column in COLUMNS:
        exact = int((np.bincount(rows[column].to_numpy()) >= min_count).sum())
        tolerance = 1.0 if column == "few" else 1.7
        assert exact / tolerance <= by_name[column] <= max(exact, 1) * tolerance, column


def test_a_sample_is_bounded_and_spread_over_the_files(directory: Path, tmp_path: Path):
    for name in ("rows.parquet", "rows.csv"):
        config = JobConfig.model_validate({"data": make_data(directory / name)}).data
        sample = read_sample(config, None)
        assert 10_000 <= sample.num_rows <= 40_000
        assert sample.num_rows_of_files == pytest.approx(NUM_ROWS, rel=0.02)
        # The sorted column shows from where in the file the rows are.
        values = np.concatenate([piece.categorical[3].distinct.to_numpy() for piece in sample.pieces])
        assert values.min() < NUM_ROWS // 8 * 0.1
        assert values.max() > NUM_ROWS // 8 * 0.9


def test_all_rows_of_few_are_counted(tmp_path: Path):
    rows = pl.DataFrame({"label": [0, 1] * 50, "price": [1.0] * 100, **{name: [7, 8] * 50 for name in COLUMNS}})
    rows.write_csv(tmp_path / "rows.csv")
    sizes = estimate(make_data(tmp_path / "rows.csv"))
    assert [table.num_rows for table in sizes.tables] == [4] * len(COLUMNS)
    assert sizes.num_dense == 1
    assert "an estimate: all 100 raw rows" in sizes.source
    assert sizes.estimated_from == "all rows, those held out for evaluation included"
    rows.write_csv(tmp_path / "later.csv")
    exact = estimate(make_data(tmp_path / "rows.csv", eval=[str(tmp_path / "later.csv")]))
    assert exact.estimated_from is None
    assert exact.source.startswith("all 100 raw rows")


def test_what_the_document_says_of_a_table_is_not_estimated(directory: Path):
    rules = {"columns": {"zipf": {"hash_size": 1234}}}
    sizes = estimate(make_data(directory / "rows.csv", vocabulary=rules))
    assert {table.name: table.num_rows for table in sizes.tables}["zipf"] == 1234


def test_rows_without_a_single_good_one_are_an_error(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("label,price,few,zipf,unique,sorted\n" + "maybe,1,1,1,1,1\n" * 9)
    with pytest.raises(DataError, match=r"rows.csv, line 2, label: "):
        estimate(make_data(tmp_path / "rows.csv"))


def test_a_column_without_any_value_has_no_rows_but_the_shared_ones():
    seen = SeenValues(np.zeros((0, 4), dtype=np.int64))
    assert estimate_num_values(seen, 1, 100.0) == 0


def test_a_value_seen_in_one_quarter_alone_grows_with_the_rows():
    # Each quarter has 100 values of its own, 5 times each; ten times the rows have ten times the values.
    counts = np.kron(np.eye(4, dtype=np.int64), np.full((100, 1), 5))
    assert estimate_num_values(SeenValues(counts), 2, 10.0) == 4000
    # Values that every quarter has are all that there are.
    assert estimate_num_values(SeenValues(np.full((100, 4), 5)), 2, 10.0) == 100
