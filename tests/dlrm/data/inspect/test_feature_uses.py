"""Reports on columns that are divided into ranges, or of which parts are taken."""

from pathlib import Path

import numpy as np
import polars as pl

from dlrm.config import DataConfig
from dlrm.data.inspect.report.gather import gather
from dlrm.data.inspect.report.report import Report, make_report

N = 4000


def report_on(path: Path) -> Report:
    random = np.random.default_rng(0)
    age = random.integers(0, 100, N)
    columns = {
        "y": np.where(random.random(N) < np.where(age < 50, 0.2, 0.6), "yes", "no"),
        "age": [None if row % 10 == 0 else value for row, value in enumerate(age.tolist())],
        "few": random.integers(0, 3, N),
        "none": [None] * N,
        "ts": (1_700_000_000 + 3600 * random.integers(0, 1000, N)),
    }
    pl.DataFrame(columns, schema_overrides={"none": pl.Float64}).write_parquet(path)
    uses = [{"name": name, "bucketize": 4} for name in ("age", "few", "none")]
    schema = {"label": "y", "positive": "yes", "categorical": [*uses, {"name": "ts", "time_part": "hour"}]}
    config = DataConfig.model_validate({"train": [str(path)], "format": "parquet", "schema": schema})
    gathered = gather(config, 10**6, lambda _, __: None)
    return make_report(gathered, embedding_dim=4, min_count=3)


def test_ranges_are_reported_by_their_names_and_parts_by_their_values(tmp_path: Path) -> None:
    report = report_on(tmp_path / "rows.parquet")
    age, few, none, hour = report.categorical
    assert [column.name for column in report.categorical] == ["age:buckets", "few:buckets", "none:buckets", "ts:hour"]
    lower = np.sort([int(name.strip("[<>= ").partition(",")[0]) for name, _ in age.top_values])
    np.testing.assert_allclose(lower, [25, 25, 50, 75], atol=4)
    assert sum(count for _, count in age.top_values) == N * 0.9
    assert np.isclose(age.missing_share, 0.1)
    assert age.auc is not None
    assert age.auc > 0.6
    assert {name for name, _ in few.top_values} == {"< 1", "[1, 2)", ">= 2"}
    assert none.num_distinct == 0
    assert hour.num_distinct == 24
    assert all(0 <= int(name) < 24 for name, _ in hour.top_values)


def test_tables_of_ranges_and_parts_have_the_size_that_the_schema_gives(tmp_path: Path) -> None:
    report = report_on(tmp_path / "rows.parquet")
    for column, num_rows in zip(report.categorical, (5, 5, 5, 25), strict=True):
        assert [(table.min_count, table.num_rows) for table in column.tables] == [
            (min_count, num_rows) for min_count in (1, 2, 3, 5, 10)
        ]
        assert column.hash_size is None
