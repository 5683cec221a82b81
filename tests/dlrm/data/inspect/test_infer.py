from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from dlrm.data.errors import DataError
from dlrm.data.inspect.judge.infer import infer
from dlrm.data.inspect.sample.csv import sample_csv
from dlrm.data.inspect.sample.file_sample import FileSample
from dlrm.data.inspect.sample.parquet import sample_parquet
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.files import find_files

ROWS = {"click": [0, 1, 1, 0], "site": ["a", "b", "a", "c"], "price": [0.5, 1.5, None, 2.5]}


def files(*paths: Path) -> list[DataFile]:
    return find_files([str(path) for path in paths], "FILES", None, Path())


def sample_of(columns: dict[str, list[object]]) -> FileSample:
    rows = pl.DataFrame(columns, strict=False)
    return FileSample(rows, rows.height, dict.fromkeys(rows.columns, "int64"))


def write(path: Path, columns: dict[str, object]) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def write_as(kind: str, path: Path, columns: dict[str, object]) -> Path:
    path = path.with_suffix(f".{kind}")
    if kind == "parquet":
        return write(path, columns)
    pl.DataFrame(columns).write_csv(path)
    return path


@pytest.mark.parametrize(
    ("columns", "label"),
    [
        ({"is_click": [0, 1], "Label": [0, 1], "x": [5, 7]}, "Label"),
        ({"y": [0.0, 1.0], "x": [5, 7]}, "y"),
        ({"click": [3, 4], "target": [True, False], "x": [5, 7]}, "target"),
        ({"conversion": [0, 1], "label": ["0.0", "1.0"], "x": [5, 7]}, "label"),
    ],
)
def test_the_label_is_found_by_its_name_where_its_values_say_which_is_1(
    columns: dict[str, list[object]], label: str
) -> None:
    assert infer(sample_of(columns)).label == label


def test_where_the_label_is_not_clear_the_candidates_are_named() -> None:
    sample = sample_of({"x": [5, 7], "bought": [0, 1], "seen": [1, 0], "z": [1, 2]})
    with pytest.raises(DataError, match=r"columns of 0 and 1 are bought, seen .*: --label bought or --label seen\)$"):
        infer(sample)
    assert infer(sample, "seen").label == "seen"
    with pytest.raises(DataError, match=r"no column 'boght' \(valid: bought and 3 more\)"):
        infer(sample, "boght")
    with pytest.raises(DataError, match=r"'x' contains 5, 6, 7 .*a column with two values"):
        infer(sample_of({"y": [0, 1, 1], "x": [5, 6, 7]}), "x")
    with pytest.raises(DataError, match="no column has exactly two values"):
        infer(sample_of({"x": [5, 6, 7]}))


@pytest.mark.parametrize(
    ("columns", "label", "positive"),
    [
        ({"x": [5, 6, 7], "Income": [">50K", "<=50K", "<=50K"]}, "Income", ">50K"),
        ({"x": [5, 6, 7], "churned?": ["No", "Yes", "No"]}, "churned?", "Yes"),
        ({"x": [5, 6, 7], "is_fraud": [1, 2, 1]}, "is_fraud", "2"),
        ({"target": [1.0, -1.0, 1.0], "x": [5, 6, 7]}, "target", "1"),
        ({"x": [5, 6, 7], "class": ["good", "bad", "good"]}, "class", "bad"),
        ({"label": ["click", "no click", "click"], "x": [5, 6, 7]}, "label", "click"),
        ({"default": ["yes", "no", "no"], "x": [5, 6, 7], "y": ["no", "no", "yes"]}, "y", "yes"),
    ],
)
def test_a_label_of_any_two_values_is_found_with_the_value_that_is_1(
    columns: dict[str, list[object]], label: str, positive: str
) -> None:
    inferred = infer(sample_of(columns))
    assert (inferred.label, inferred.positive) == (label, positive)
    assert repr(positive) in inferred.label_why


@pytest.mark.parametrize("place", [0, 2])
def test_the_only_column_of_0_and_1_is_the_label_if_first_or_last(place: int) -> None:
    columns: dict[str, list[object]] = {"a": [5, 6, 7], "b": ["x", "y", "x"], "c": [1.5, 2.5, 3.5]}
    columns["abc"[place]] = [0, 1, 1]
    assert infer(sample_of(columns)).label == "abc"[place]
    columns["ca"[place // 2]] = [1, 0, 1]
    with pytest.raises(DataError, match=r"not clear which column .*: --label a or --label c"):
        infer(sample_of(columns))


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("values", [[0, 1], ["No", "Yes"], [1, 2]])
def test_of_several_columns_of_two_values_the_only_one_at_an_end_is_the_label(place: int, values: list[object]) -> None:
    within: dict[str, list[object]] = {"newsletter": ["no", "yes", "no"] * 10, "paid": [0, 1, 1] * 10}
    outcome = {"left us": [values[0], values[0], values[1]] * 10}
    other = {"age": list(range(30))}
    columns = {**outcome, **within, **other} if place == 0 else {**other, **within, **outcome}
    inferred = infer(sample_of(columns))
    assert inferred.label == "left us"
    others = "0 and 1 are neither first nor last: paid" if values[0] == 0 else "two values are neither first nor last: "
    assert inferred.label_why.startswith(f"the {'last' if place else 'first'} column, while others of {others}")


def test_without_a_single_two_valued_column_at_an_end_all_are_named_as_labels() -> None:
    middle = {"newsletter": ["no", "yes", "no"] * 10, "paid": [0, 1, 1] * 10}
    other = {"age": list(range(30)), **middle, "x": list(range(30))}
    with pytest.raises(DataError, match=r"with two values are newsletter, paid .*--label newsletter or --label paid"):
        infer(sample_of(other))  # type: ignore[arg-type]
    ends = {"left us": ["no", "yes", "no"] * 10, "age": list(range(30)), "paid twice": ["a", "b", "b"] * 10}
    with pytest.raises(DataError, match=r"--label 'left us' or --label 'paid twice'"):
        infer(sample_of(ends))  # type: ignore[arg-type]


def test_rows_of_one_class_are_refused_where_all_rows_were_read() -> None:
    sample = sample_of({"y": [0, 0, 0], "x": [5, 6, 7]})
    with pytest.raises(DataError, match="the label is 0 in every row"):
        infer(sample)
    assert infer(FileSample(sample.rows, 10**6, sample.types)).label == "y"


@pytest.mark.parametrize(
    ("name", "values", "wish", "weight", "why", "left_out"),
    [
        ("sampleWeight", [0.5, 2.0], None, "sampleWeight", "by its name, mean 1.25; --weight none leaves it out", ""),
        ("instance weight", [1700.0, 2000.0], None, "instance weight", "by its name, mean 1.85e+03", ""),
        ("sample_weight", [0.5, 2.0], "none", None, "", "called a weight of the rows, and --weight none was told"),
        ("sample_weight", [0.5, None], None, None, "", "called a weight of the rows, but it lacks a value in 1 of 2"),
        (
            "sample_weight",
            [0.5, 1e39],
            None,
            None,
            "",
            "called a weight of the rows, but it holds numbers beyond",
        ),
        ("case_weights", [-0.5, 2.0], None, None, "", "called a weight of the rows, but it holds numbers below 0"),
        ("Weight", [6.5, 2.0], None, None, "Weight is a feature; --weight Weight makes it the weight of the rows", ""),
        ("weight", [-0.5, 2.0], None, None, "", ""),
        ("weight", [6.5, 2.0], "weight", "weight", "as told, mean 4.25", ""),
        ("kilos", [6, 2], "kilos", "kilos", "as told, mean 4", ""),
    ],
)
def test_a_weight_is_what_can_mean_nothing_else_or_what_was_asked_for(
    name: str, values: list[object], wish: str | None, weight: str | None, why: str, left_out: str
) -> None:
    inferred = infer(sample_of({"y": [0, 1], name: values, "x": [5, 7]}), weight=wish)
    (choices,) = [[choice for choice in inferred.choices if choice.name == name]]
    assert inferred.weight == weight
    assert inferred.weight_why.startswith(why)
    assert bool(why) == bool(inferred.weight_why)
    assert (choices == []) == (weight is not None)
    assert [choice.why[: len(left_out)] for choice in choices if choice.is_left_out] == [left_out] * bool(left_out)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("wait", "--weight: there is no column 'wait' \\(valid: weight"),
        ("y", "column 'y' is the label"),
        ("weight", "column 'weight' lacks a value in 1 of 2 rows"),
        ("site", "column 'site' is int64"),
        ("zero", "column 'zero' is 0 in every row"),
    ],
)
def test_a_column_that_cannot_be_the_weight_is_refused(wish: str, said: str) -> None:
    columns = {"y": [0, 1], "weight": [1.0, None], "site": ["a", "b"], "zero": [0, 0]}
    with pytest.raises(DataError, match=said):
        infer(sample_of(columns), weight=wish)  # type: ignore[arg-type]


def test_of_columns_with_the_same_content_one_is_kept() -> None:
    draw = np.random.default_rng(0)
    site, price = draw.integers(0, 50, 1000), draw.normal(size=1000)
    columns = {"y": draw.integers(0, 2, 1000), "site": site, "name": [f"s{v}" for v in site], "price": price}
    sample = sample_of({**columns, "cost": price, "double": 2 * price})  # type: ignore[arg-type]
    left_out = {choice.name: choice.why for choice in infer(sample).choices if choice.is_left_out}
    assert left_out == {
        "name": "the same content as 'site' in every row",
        "cost": "the same content as 'price' in every row",
    }


def test_a_column_that_gives_the_label_away_is_kept_and_named() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 1000)
    columns = {"y": labels, "score": labels * 3.0 + draw.normal(size=1000) / 5, "x": labels + draw.normal(size=1000)}
    inferred = infer(sample_of(columns))  # type: ignore[arg-type]
    assert list(inferred.leaks) == ["score"]
    assert not any(choice.is_left_out for choice in inferred.choices)


def test_columns_whose_names_a_document_cannot_have_are_left_out_with_the_reason() -> None:
    label = np.arange(400) % 2
    number = label + np.random.default_rng(0).normal(size=400)
    ids = label + 2 * (np.arange(400) % 7)
    names = ["label", "col", "col:buckets", " ", "x" * 201, "a\0b"]
    rows = pl.DataFrame([label, number, ids, ids, ids, ids], schema=names)
    found = infer(FileSample(rows, 40_000, dict.fromkeys(names, "integer")), "label")
    choices = {choice.name: choice for choice in found.choices}
    assert choices["col"].categorical == []
    assert choices["col"].dense is not None
    assert "no feature 'col:buckets' of it, since a column has this name" in choices["col"].why
    assert choices["col:buckets"].categorical == [{"type": "integer"}]
    assert [choices[name].is_left_out for name in names[3:5]] == [True, True]
    with pytest.raises(DataError, match="the label cannot be read: it has no name"):
        infer(FileSample(rows.rename({"label": ""}), 400, dict.fromkeys(["", *names[1:]], "integer")), "")


def test_files_with_nothing_to_learn_from_are_refused() -> None:
    with pytest.raises(DataError, match="no column is left"):
        infer(sample_of({"y": [0, 1], "x": [5, 5]}))


def test_columns_that_the_evaluation_files_lack_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,x,z\n0,1,2\n1,2,3\n")
    (tmp_path / "b.csv").write_text("z,y\n2,1\n")
    sample = sample_csv(files(tmp_path / "a.csv"), files(tmp_path / "b.csv"))
    assert sample.types["x"] == f"not in {tmp_path / 'b.csv'}"
    first = write(tmp_path / "a.parquet", {"y": [0, 1], "x": [1, 2], "z": [1, 2]})
    second = write(tmp_path / "b.parquet", {"y": [0, 1], "z": ["1", "2"]})
    sample = sample_parquet(files(first), files(second))
    assert sample.num_rows == 2
    assert sample.types["x"] == f"not in {second}"
    assert sample.types["z"] == f"not of one type: int64 in {first}, string in {second}"
    (tmp_path / "c.csv").write_text("x,z\n1,2\n")
    with pytest.raises(DataError, match=r"the label cannot be read from all files: not in .*c\.csv"):
        infer(sample_csv(files(tmp_path / "a.csv"), files(tmp_path / "c.csv")))


LOGS = {"click": [0, 1] * 30, "site_id": ["a", "b", "c"] * 20, "price": [1.5, 2.5, 3.5, 4.5] * 15}
RENAMED = {"click": LOGS["click"], "siteId": LOGS["site_id"], "price": LOGS["price"], "later": [1, 2] * 30}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_under_another_name_in_the_evaluation_file_is_reported_once_with_both_names(
    tmp_path: Path, kind: str
) -> None:
    first, second = (write_as(kind, tmp_path / name, rows) for name, rows in (("a", LOGS), ("b", RENAMED)))
    sample = (sample_csv if kind == "csv" else sample_parquet)(files(first), files(second))
    inferred = infer(sample)
    assert inferred.unshared == {
        "site_id": f"not in {second}, which has 'siteId': rename one of them if they are the same",
        "later": f"not in {first}",
    }
    assert {choice.name for choice in inferred.choices if not choice.is_left_out} == {"price"}


def test_an_evaluation_file_without_the_label_under_any_name_of_an_outcome_is_refused(tmp_path: Path) -> None:
    first = write_as("csv", tmp_path / "a", {"x": [5, 6, 7, 8] * 15, "income": ["low", "high"] * 30})
    second = write_as("csv", tmp_path / "b", {"x": [5, 6, 7, 8] * 15, "Income": ["low", "high"] * 30})
    message = r"income: the label cannot be read from all files: not in .*b\.csv, which has 'Income'"
    with pytest.raises(DataError, match=message):
        infer(sample_csv(files(first), files(second)))


def test_a_single_column_named_otherwise_in_the_evaluation_is_refused(
    tmp_path: Path,
) -> None:
    first = write_as("csv", tmp_path / "a", {"click": [0, 1] * 30, "site": ["a", "b", "c"] * 20})
    second = write_as("csv", tmp_path / "b", {"click": [0, 1] * 30, "Site": ["a", "b", "c"] * 20})
    message = r"no column is left to learn from: site is not in .*b\.csv, which has 'Site'"
    with pytest.raises(DataError, match=message):
        infer(sample_csv(files(first), files(second)))
