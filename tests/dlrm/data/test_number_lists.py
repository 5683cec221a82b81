"""Lists of numbers of one length, such as embeddings: a dense feature for each element, from the files to a model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from pydantic import ValidationError

from dlrm.config import DataConfig, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.inspect.judge.infer import infer
from dlrm.data.inspect.sample.file_sample import FileSample
from dlrm.data.inspect.sample.files import sample_files
from dlrm.data.packed.open import open_packed
from dlrm.data.prepare.cache import find_or_prepare
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.exported_model.load import load_saved_model
from tests.dlrm.data.raw.plain import found, tables_of
from tests.dlrm.exported_model.model_factory import made_model

NAN, INF = float("nan"), float("inf")
SCHEMA: dict[str, Any] = {"dense": [{"name": "e", "length": 3}], "categorical": [{"name": "site"}]}
LISTS: list[list[float | None] | None] = [[0.5, -1, 2], None, [1e30, None, 0.25], [], [0.1, -0.0, 3]]
NUMBERS = np.array([[0.5, -1, 2], [NAN] * 3, [1e30, NAN, 0.25], [NAN] * 3, [0.1, 0, 3]])


def test_a_length_stands_for_a_column_for_each_element() -> None:
    schema = SchemaConfig.model_validate(
        {"dense": [{"name": "e{}", "count": 2, "length": 2, "transform": "none"}, {"name": "x"}]}
    )
    elements = [DenseColumn(name=f"e{i}", element=k, transform="none") for i in range(2) for k in range(2)]
    assert schema.dense == [*elements, DenseColumn(name="x")]
    assert [column.feature for column in schema.dense] == ["e0[0]", "e0[1]", "e1[0]", "e1[1]", "x"]
    assert (schema.input_names, schema.list_lengths) == (["e0", "e1", "x"], {"e0": 2, "e1": 2})
    assert SchemaConfig.model_validate(schema.model_dump(mode="json")) == schema


@pytest.mark.parametrize(
    ("dense", "message"),
    [
        ([{"name": "e", "length": 0}], "0 is not a number of columns"),
        ([{"name": "e{}", "count": 101, "length": 100}], "names 10,100 columns"),
        ([{"name": "e", "length": 2, "element": 1}], "not together with length"),
        ([{"name": "e", "length": 2, "decimal_mark": ","}], "whose values are plain numbers"),
        ([{"name": "e", "length": 2}, {"name": "e"}], "has another use"),
        ([{"name": "e", "length": 2}, {"name": "site"}, {"name": "site", "element": 1}], "has another use"),
        ([{"name": "e", "element": 0}, {"name": "e", "element": 2}], "has element 2, but not all before it"),
        ([{"name": "e", "length": 2}, {"name": "e[1]"}], r"has the feature 'e\[1\]' twice"),
    ],
)
def test_other_uses_of_lists_are_refused(dense: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SchemaConfig.model_validate({"dense": dense, "categorical": [{"name": "site"}]})


def make_table(lists: pa.Array) -> pa.Table:
    rows = range(len(lists))
    return pa.table({"label": [row % 2 for row in rows], "site": ["ab"[row % 2] for row in rows], "e": lists})


def write_lines(path: Path, table: pa.Table) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))


def make_tensors(lists: list[Any]) -> pa.Array:
    kind = pa.fixed_shape_tensor(pa.float64(), (3,))
    return pa.ExtensionArray.from_storage(kind, pa.array([found or None for found in lists], kind.storage_type))


ARRAYS: dict[str, Callable[[list[Any]], pa.Array]] = {
    "list": lambda lists: pa.array(lists, pa.list_(pa.float32())),
    "large list": lambda lists: pa.array(lists, pa.large_list(pa.float64())),
    "fixed size": lambda lists: pa.array([found or None for found in lists], pa.list_(pa.float64(), 3)),
    "texts": lambda lists: pa.array([found and [str(x) if x is not None else "" for x in found] for found in lists]),
    "tensors": make_tensors,
}
WRITERS: dict[str, Callable[[Path, pa.Table], Any]] = {
    "parquet": lambda path, table: parquet.write_table(table, path, row_group_size=2),
    "arrow": lambda path, table: feather.write_feather(table, str(path)),
    "jsonl": write_lines,
}


def config_of(path: Path, kind: str, **fields: Any) -> DataConfig:
    document = {"train": [str(path)], "format": kind, "schema": SCHEMA, **fields}
    return DataConfig.model_validate(document)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("make_array", ARRAYS.values(), ids=ARRAYS)
def test_every_type_and_format_gives_the_numbers_of_the_lists(
    tmp_path: Path, make_array: Callable[[list[Any]], pa.Array], kind: str
) -> None:
    WRITERS[kind](tmp_path / "rows", make_table(make_array(LISTS)))
    tables = [*tables_of(config_of(tmp_path / "rows", kind), [found(tmp_path / "rows")])]
    numbers = np.concatenate([np.stack(table.dense, axis=1) for table in tables])
    np.testing.assert_allclose(numbers, NUMBERS, rtol=1e-7)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[0.5, 1, 2], [1.5, 2]], r"line 2, e: has 2 values \(valid: a list of 3 numbers, or null\)"),
        ([["1.5", "2", "3"], ["1.5", "x", "y"]], r"line 2, e: 'x' is not a number"),
    ],
)
def test_a_row_with_other_lists_is_bad(tmp_path: Path, kind: str, lists: list[Any], message: str) -> None:
    path = tmp_path / "rows"
    WRITERS[kind](path, make_table(pa.array(lists)))
    with pytest.raises(DataError, match=message):
        next(tables_of(config_of(path, kind), [found(path)]))


@pytest.mark.parametrize(
    ("lists", "schema", "message"),
    [
        (pa.array([[0.5] * 4], pa.list_(pa.float32(), 4)), SCHEMA, r"float>\[4\] \(valid: lists of 3 numbers\)"),
        (pa.array([0.5]), SCHEMA, r"type is double \(valid: lists of 3 numbers\)"),
        (pa.array([[0.5]]), {"dense": [{"name": "e"}]}, r"or length in the schema, for lists of numbers\)"),
    ],
)
def test_columns_of_other_types_are_named(tmp_path: Path, lists: pa.Array, schema: Any, message: str) -> None:
    path = tmp_path / "rows"
    parquet.write_table(make_table(lists), path)
    with pytest.raises(DataError, match=message):
        next(tables_of(config_of(path, "parquet", schema=schema), [found(path)]))


def test_csv_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('label,site,e\n1,a,"[1, 2, 3]"\n')
    with pytest.raises(DataError, match=r"rows.csv, e: CSV has no lists of numbers \(valid: jsonl, parquet or arrow"):
        next(cut_csv_blocks(found(tmp_path / "rows.csv"), SchemaConfig.model_validate(SCHEMA)))


FLOATS = pl.List(pl.Float64)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pl.Series([[0.5, 1.0]] * 10, dtype=FLOATS), {"length": 2, "transform": "standardise"}),
        (pl.Series([[0.5], None, [1.0], []] * 10, dtype=FLOATS), {"length": 1, "transform": "standardise"}),
        (pl.Series([[0.5, NAN], [INF, None]] * 10, dtype=FLOATS), {"length": 2, "transform": "standardise"}),
        (pl.Series([[0.5, 1.0], [0.5]] * 10, dtype=FLOATS), "lists of 1 to 2 numbers, not of one length"),
        (pl.Series([[0.5] * 1025] * 4, dtype=FLOATS), "lists of 1,025 numbers"),
        (pl.Series([[3.0, 1.0]] * 10, dtype=FLOATS), None),
    ],
)
def test_lists_of_numbers_that_are_not_whole_are_dense_if_of_one_length(values: pl.Series, expected: Any) -> None:
    n = len(values)
    others = {"label": pl.Series([0, 1] * (n // 2)), "x": pl.Series(range(n))}
    rows = pl.DataFrame({**others, "e": values})
    (choice,) = [c for c in infer(FileSample(rows, n, dict.fromkeys(rows.columns, "type"))).choices if c.name == "e"]
    if expected is None:
        assert choice.categorical == [{"type": "integer", "multi_hot": True}]
    elif isinstance(expected, str):
        assert choice.is_left_out
        assert expected in choice.why
    else:
        assert choice.dense == expected
        assert not choice.categorical


def test_a_list_whose_element_has_the_name_of_another_column_is_left_out() -> None:
    rows = pl.DataFrame({"label": [0, 1] * 300, "e": [[0.5, 1.5]] * 600, "e[1]": np.random.default_rng(0).random(600)})
    choices = infer(FileSample(rows, 600, dict.fromkeys(rows.columns, "type"))).choices
    assert {choice.name: choice.is_left_out for choice in choices} == {"e": True, "e[1]": False}


@pytest.fixture(scope="module")
def lists() -> np.ndarray:
    """Lists [400, 3], of which one in 20 is missing."""
    numbers = np.random.default_rng(0).normal(3, 2, (400, 3)).astype(np.float32).astype(np.float64)
    numbers[::20] = NAN
    return numbers


def to_lists(numbers: np.ndarray) -> list[list[float] | None]:
    return [None if np.isnan(row).all() else row.tolist() for row in numbers]


def prepare(path: Path, kind: str = "parquet") -> tuple[DataConfig, Path]:
    config = config_of(path, kind, split="tail")
    cache = path.parent / "cache"
    return config, find_or_prepare(config, None, cache, base_directory=path.parent, num_threads=1, on_event=print)


@pytest.mark.parametrize("misses_one", [False, True])
def test_features_are_standardised_and_a_missing_list_has_one_indicator(
    tmp_path: Path, lists: np.ndarray, misses_one: bool
) -> None:
    lists = lists.copy()
    if misses_one:
        lists[7, 1] = NAN
    parquet.write_table(make_table(pa.array(to_lists(lists), from_pandas=True)), tmp_path / "rows")
    dataset = open_packed(prepare(tmp_path / "rows")[1])
    assert dataset.encoders is not None
    more = ["e[1] missing"] if misses_one else []
    more = [*more, "e[2]", *(["e[2] missing"] if misses_one else [])]
    assert dataset.encoders.dense_names == ["e[0]", "e[0] missing", "e[1]", *more]
    rows = dataset.train.read(np.arange(360)).dense
    train = lists[:360]
    standardised = np.nan_to_num((train - np.nanmean(train, axis=0)) / np.nanstd(train, axis=0))
    columns = [dataset.encoders.dense_names.index(f"e[{element}]") for element in range(3)]
    np.testing.assert_allclose(rows[:, columns], standardised, atol=1e-5)
    np.testing.assert_array_equal(rows[:, 1], np.isnan(train[:, 0]))


def test_a_model_scores_lists_in_memory_and_in_files_alike(tmp_path: Path, lists: np.ndarray) -> None:
    table = make_table(ARRAYS["list"](to_lists(lists)))
    parquet.write_table(table, tmp_path / "rows")
    made_model(tmp_path / "model", *prepare(tmp_path / "rows"))
    model = load_saved_model(tmp_path / "model")
    assert model.columns == ["e", "site"]
    WRITERS["jsonl"](tmp_path / "lines", table)
    scores = model.predict_table(table)
    assert len(np.unique(scores)) > 300
    sites = table["site"].to_pylist()
    for other in (
        *(np.concatenate(list(model.predict_files(str(tmp_path / name)))) for name in ("rows", "lines")),
        model.predict_table(
            pl.DataFrame({"site": sites, "e": pl.Series(to_lists(lists), dtype=pl.Array(pl.Float32, 3))})
        ),
        model.predict({"site": sites, "e": to_lists(lists)}),
        model.predict({"site": sites, "e": lists}),
        model.predict({"site": np.array(sites), "e": lists.astype(np.float32)}),
    ):
        np.testing.assert_allclose(other, scores, atol=1e-6)
    for one in (lists[1], lists[1].tolist()):
        np.testing.assert_allclose(model.predict({"site": sites[1], "e": one}), scores[1:2], atol=1e-6)
    for wrong, message in (
        (lists[:, :2], r"^e, row 0: has 2 values \(valid: a list of 3 numbers, or null\)"),
        (lists[:, 0], r"^e: the column's type is double \(valid: lists of 3 numbers\)"),
        ([[0.5, "x", 1.0]] * 400, r"^e: is not a list of values of one type.*valid: lists of numbers"),
    ):
        with pytest.raises(DataError, match=message):
            model.predict({"site": sites, "e": wrong})
    assert "| `e` | list of 3 numbers | standardise |" in (tmp_path / "model" / "MODEL_CARD.md").read_text()


def test_files_of_lists_are_sampled_alike(tmp_path: Path, lists: np.ndarray) -> None:
    for kind, write in WRITERS.items():
        write(tmp_path / kind, make_table(ARRAYS["fixed size"](to_lists(lists))))
        choices = infer(sample_files(kind, [found(tmp_path / kind)])).choices
        assert [choice.dense for choice in choices if choice.name == "e"] == [{"length": 3, "transform": "standardise"}]
