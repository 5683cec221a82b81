"""Columns that the paths of files state, as in day=2026-11-27/country=US/part-0.parquet."""

import json
from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

from dlrm.config import CategoricalColumn, DataConfig, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.inspect.judge.infer import infer
from dlrm.data.inspect.report.job_files import check_files
from dlrm.data.inspect.sample.files import sample_files
from dlrm.data.prepare.fingerprint import get_identities
from dlrm.data.raw.data_file import MISSING
from dlrm.data.raw.files import find_files
from tests.dlrm.data.raw.plain import Row, plain_rows, tables_of


def write_jsonl(table: pa.Table, path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


WRITERS: dict[str, Callable[..., None]] = {
    "parquet": parquet.write_table,
    "csv": csv.write_csv,
    "arrow": partial(feather.write_feather, compression="uncompressed"),
    "jsonl": write_jsonl,
}
FORMATS = pytest.mark.parametrize("kind", [*WRITERS])


def write(path: Path, kind: str, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[kind](pa.table(columns), path)


def make_config(kind: str, schema: SchemaConfig) -> DataConfig:
    return DataConfig(train=["t"], format=kind, schema=schema)


@FORMATS
def test_values_of_paths_are_read_like_cells_of_csv(tmp_path: Path, kind: str) -> None:
    places = ["country=US/n=7", "country=a%2Fb%20%C3%A9/n=-1", "country=__HIVE_DEFAULT_PARTITION__/n="]
    for number, place in enumerate(places):
        write(
            tmp_path / f"t/day=2026-11-{27 + number}/label={number % 2}" / place / "part-0",
            kind,
            site=["s", None],
            more=[1, 2],
        )
    schema = SchemaConfig(
        dense=[DenseColumn(name="n", transform="none")],
        categorical=[
            CategoricalColumn(name="country"),
            CategoricalColumn(name="n", type="integer"),
            CategoricalColumn(name="day", time_part="day"),
            CategoricalColumn(name="site"),
        ],
    )
    config = make_config(kind, schema)
    # A file has the same columns however it is named.
    for patterns in (["t"], ["t/day=2026-11-2*", "t/**/part-0"], ["t/day=2026-11-27", "t/day=2026-11-28", "t"]):
        files = find_files(patterns, "data.train", None, tmp_path)
        rows = [row for table in tables_of(config, files) for row in plain_rows(table)]
        expected = [("US", 7, 27), ("a/b é", -1, 28), (None, None, 29)]
        assert rows == [
            Row(float(number % 2), None, (n if n is None else float(n),), (country, n, day, site))
            for number, (country, n, day) in enumerate(expected)
            for site in ("s", None)
        ]


@FORMATS
def test_a_file_and_its_path_may_state_a_value_twice_but_not_two_values(tmp_path: Path, kind: str) -> None:
    schema = SchemaConfig(
        dense=[DenseColumn(name="n", transform="none")],
        categorical=[CategoricalColumn(name="site"), CategoricalColumn(name="day", time_part="hour")],
    )
    config = make_config(kind, schema)
    same: dict[str, Any] = {"n": [7.0, 7.0], "site": ["a b"] * 2, "day": ["2026-11-27T05:00", "2026-11-27 17:00:01"]}
    place = tmp_path / "t/day=2026-11-27/n=07/site=a%20b/a"
    write(place, kind, label=[0, 1], **same)
    (table,) = tables_of(config, find_files(["t"], None, None, tmp_path))
    assert [(row.dense, row.categorical) for row in plain_rows(table)] == [((7.0,), ("a b", h)) for h in (5, 17)]
    others = {"n": [7.0, 8.0], "site": ["a b", "A b"], "day": ["2026-11-27", "2026-11-28"]}
    for name, values in others.items():
        write(place, kind, label=[0, 1], **{**same, name: values})
        with pytest.raises(DataError, match=rf"a, line \d, {name}: is .*8|A b.*, but the path of the file states"):
            list(tables_of(config, find_files(["t"], None, None, tmp_path)))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
def test_a_missing_value_is_another_one_than_that_of_the_path(tmp_path: Path, kind: str) -> None:
    config = make_config(kind, SchemaConfig(categorical=[CategoricalColumn(name="site")]))
    for number, (stated, message) in enumerate(
        [("x", "line 2, site: is missing, but the path .* 'x'"), (MISSING, "line 1, site: is 'x', but .* missing")]
    ):
        write(tmp_path / f"{number}/site={stated}/a", kind, label=[0, 1], site=["x", None])
        with pytest.raises(DataError, match=message if kind != "csv" else message.replace("2", "3").replace("1", "2")):
            list(tables_of(config, find_files([str(number)], None, None, tmp_path)))


def test_times_of_parquet_may_be_more_exact_than_the_day_of_their_path(tmp_path: Path) -> None:
    config = make_config("parquet", SchemaConfig(categorical=[CategoricalColumn(name="day", time_part="hour")]))
    days = [date(2026, 11, 27)], [datetime(2026, 11, 27, 23, 59, 59)]
    for values, hour in zip(days, (0, 23), strict=True):
        write(tmp_path / "t/day=2026-11-27/a", "parquet", label=[1], day=values)
        (table,) = tables_of(config, find_files(["t"], None, None, tmp_path))
        assert plain_rows(table)[0].categorical == (hour,)
    write(tmp_path / "t/day=2026-11-28/a", "parquet", label=[1], day=days[1])
    with pytest.raises(DataError, match=r"day: is '2026-11-27 23:59:59', but .* states '2026-11-28'"):
        list(tables_of(config, find_files(["t"], None, None, tmp_path)))


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow"])
def test_a_path_without_the_column_is_refused_with_its_file(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "t/site=x/a", kind, label=[0, 1])
    write(tmp_path / "t/b", kind, label=[0, 1])
    config = make_config(kind, SchemaConfig(categorical=[CategoricalColumn(name="site")]))
    with pytest.raises(DataError, match=r"t/b,.* site: there is no such column"):
        list(tables_of(config, find_files(["t"], None, None, tmp_path)))


def test_of_links_both_names_count_that_of_the_real_file_first(tmp_path: Path) -> None:
    write(tmp_path / "blobs/1", "parquet", label=[0])
    write(tmp_path / "t/site=x/b", "parquet", label=[0])
    (tmp_path / "t/site=x/a").symlink_to(tmp_path / "blobs/1")
    (tmp_path / "t/site=latest").symlink_to(tmp_path / "t/site=x")
    for pattern in ("t/site=x/a", "t/site=latest/b"):
        assert find_files([pattern], None, None, tmp_path)[0].path_values == {"site": "x"}


@FORMATS
def test_inference_finds_their_types(tmp_path: Path, kind: str) -> None:
    label = np.arange(400) % 2
    for number in range(20):
        place = tmp_path / f"t/n={number}/code=0{number % 3}/country={'AB'[number % 2]}/day=2026-10-{1 + number:02}/a"
        write(place, kind, label=label, x=label + np.random.default_rng(number).normal(size=400))
    files = find_files(["t"], None, None, tmp_path)
    sample = sample_files(kind, files)
    types = {name: str(sample.rows[name].dtype) for name in sample.rows.columns}
    assert types == {
        "label": "Int64",
        "x": "Float64",
        "n": "Int64",
        "code": "String",
        "country": "String",
        "day": "String",
    }
    choices = {choice.name: choice for choice in infer(sample, "label").choices}
    assert choices["n"].categorical == [{"type": "integer"}]
    schema = SchemaConfig(categorical=[CategoricalColumn(name="country")])
    check_files(DataConfig(train=[str(tmp_path / "t")], format=kind, schema=schema))
    assert choices["country"].categorical == choices["code"].categorical == [{"type": "string"}]
    assert "times from 2026-10-01 to 2026-10-20" in choices["day"].why


def test_rows_are_known_by_those_values_alone_that_are_read(tmp_path: Path) -> None:
    write(tmp_path / "run=1/site=x/a", "parquet", label=[0, 1])
    files = find_files(["run=1"], None, None, tmp_path)
    contents = {files[0].name: "hash"}
    schemas = (SchemaConfig(categorical=[CategoricalColumn(name=name)]) for name in ("site", "c"))
    used, unused = (make_config("parquet", schema) for schema in schemas)
    assert get_identities(unused, files, contents) == ["hash"]
    assert get_identities(used, files, contents) == [["hash", [{"site": "x"}]]]


USER, STRING = CategoricalColumn(name="x", type="integer"), CategoricalColumn(name="x")
NUMBER, HOUR = DenseColumn(name="x", transform="none"), CategoricalColumn(name="x", time_part="hour")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    ("column", "stated", "same", "other"),
    [
        pytest.param(USER, "500000001", 500000001, 500000002, id="an id is no time"),
        pytest.param(STRING, "2026-11-27", "2026-11-27", "2026-11-27T05:00", id="a text is no time"),
        pytest.param(HOUR, "500000001", 500000001, 500000002, id="seconds are no day"),
        pytest.param(HOUR, "2026-11-27", 1795755600, 1795755600 + 86_400, id="seconds are of their day"),
        pytest.param(USER, "9007199254740992", 9007199254740992, 9007199254740993, id="beyond 2^53"),
        pytest.param(USER, "0009007199254740993", 9007199254740993, 9007199254740992, id="with zeros"),
        pytest.param(USER, str(2**64 - 1), np.uint64(2**64 - 1), np.uint64(2**64 - 2), id="beyond int64"),
        pytest.param(STRING, "NA", None, "US", id="a word that stands for missing"),
        pytest.param(STRING, "NA", "NA", "US", id="the word itself"),
        pytest.param(NUMBER, MISSING, float("nan"), 1.0, id="NaN"),
        pytest.param(NUMBER, MISSING, "NaN", "1", id="text NaN"),
    ],
)
def test_the_value_of_a_file_is_compared_as_it_is_read(
    tmp_path: Path, kind: str, column: CategoricalColumn | DenseColumn, stated: str, same: Any, other: Any
) -> None:
    columns = {"dense": [column]} if isinstance(column, DenseColumn) else {"categorical": [column]}
    config = make_config(kind, SchemaConfig(missing=["NA"], **columns))
    place = tmp_path / f"t/x={stated}/a"
    write(place, kind, label=[0, 1], x=[same, same])
    (table,) = tables_of(config, find_files(["t"], None, None, tmp_path))
    assert len(plain_rows(table)) == 2
    write(place, kind, label=[0, 1], x=[same, other])
    with pytest.raises(DataError, match=r"line \d, x: is .*, but the path of the file states"):
        list(tables_of(config, find_files(["t"], None, None, tmp_path)))
