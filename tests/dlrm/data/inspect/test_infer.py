import decimal
import gzip
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


def test_parquet_rows_are_sampled_everywhere_and_keep_their_types(tmp_path: Path) -> None:
    table = pa.table({"row": range(300_000), "tag": pa.array(["a", "b"] * 150_000).dictionary_encode()})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=50_000)
    sample = sample_parquet(files(tmp_path / "a.parquet"))
    assert sample.num_rows == 300_000
    assert sample.rows.height == 100_008
    assert not sample.is_estimate
    # Neighbours are read in pairs.
    assert sample.rows["row"].to_list()[-2:] == [299_998, 299_999]
    assert sample.rows["tag"].dtype == pl.String


def test_parquet_columns_that_differ_between_files_are_left_out_with_the_file(tmp_path: Path) -> None:
    first = write(tmp_path / "a.parquet", {**ROWS, "mixed": ["1", "2", "3", "4"], "old": [1, 2, 3, 4]})
    second = write(tmp_path / "b.parquet", {**ROWS, "mixed": [1, 2, 3, 4], "price": [1, 2, 3, 4]})
    inferred = infer(sample_parquet(files(first, second)))
    choices = {choice.name: choice for choice in inferred.choices}
    assert choices["old"].why == f"not in {second}"
    assert choices["mixed"].why == f"not of one type: int64 in {second}, string in {first}"
    assert inferred.unshared == {"mixed": choices["mixed"].why, "old": choices["old"].why}
    assert choices["price"].dense is not None


def test_csv_types_are_those_of_the_values(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('click,site,price,code,n\r\n0,a,0.5,007,3\r\n1,"b",,018,-4\r\n')
    sample = sample_csv(files(path))
    assert sample.rows.schema == {
        "click": pl.Int64(),
        "site": pl.String(),
        "price": pl.Float64(),
        "code": pl.String(),
        "n": pl.Int64(),
    }
    assert sample.rows["site"].to_list() == ["a", "b"]
    assert sample.rows["price"].to_list() == [0.5, None]


def write_long_csv(path: Path, num_rows: int) -> list[DataFile]:
    lines = "".join(f"{row % 2},{row:09}{'x' if row > num_rows * 0.99 else ''}\n" for row in range(num_rows))
    content = f"y,x\n{lines}".encode()
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return files(path)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_csv_rows_are_counted_and_sampled_from_all_of_a_large_file(tmp_path: Path, name: str) -> None:
    sample = sample_csv(write_long_csv(tmp_path / name, 400_000))
    assert (sample.num_rows, sample.is_estimate) == (400_000, False)
    assert sample.rows["x"].dtype == pl.String
    assert 90_000 <= sample.rows.height <= 100_000
    rows = sample.rows["x"].str.slice(0, 9).cast(pl.Int64).to_numpy()
    assert len(np.unique(rows)) == len(rows)
    assert np.bincount(rows // 40_000).min() > 5000


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_rows_of_csv_that_is_too_long_to_count_are_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("dlrm.data.inspect.sample.pieces._MAX_BYTES", 1 << 20)
    monkeypatch.setattr("dlrm.data.inspect.sample.pieces._MAX_COMPRESSED_BYTES", 200_000)
    sample = sample_csv(write_long_csv(tmp_path / name, 400_000))
    assert sample.is_estimate
    assert sample.num_rows == pytest.approx(400_000, rel=0.06)
    assert len(sample.rows) > 50_000


def test_rows_of_many_csv_files_are_estimated_from_some_of_them(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number}.csv").write_text("y,x\n" + "0,5\n1,7\n" * 50)
    sample = sample_csv(files(tmp_path))
    assert (sample.num_rows, sample.is_estimate) == (10_000, True)


def test_wide_integers_of_csv_are_read_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"y,signed,unsigned,long\n0,{-(2**63)},7,{2**64}\n1,{2**63 - 1},{2**64 - 1},{2**64 + 1}\n")
    rows = sample_csv(files(path)).rows
    assert rows["signed"].to_list() == [-(2**63), 2**63 - 1]
    assert rows["unsigned"].to_list() == [7, 2**64 - 1]
    assert rows["long"].to_list() == [str(2**64), str(2**64 + 1)]


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


@pytest.mark.parametrize("line", [b'1,"abc', b'1,"a', b"1,2,3", b"1", b"1,\xff", b"1,\0"])
def test_csv_lines_that_are_no_rows_are_left_out(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"y,x\n" + b"0,a\n1,b\n" * 300 + line + b"\n" + b"0,a\n" * 300)
    sample = sample_csv(files(path))
    assert sample.rows.height == 900
    assert sample.rows["y"].sum() == 300
    assert set(sample.rows["x"]) == {"a", "b"}


def test_compressed_csv_without_a_header_gets_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"0,3.5,a\n1,4.5,b\n"))
    sample = sample_csv(files(path))
    assert not sample.has_header
    assert sample.rows.columns == ["column_1", "column_2", "column_3"]
    assert sample.rows.height == 2


def test_csv_columns_that_a_later_file_lacks_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,x,z\n0,1,2\n")
    (tmp_path / "b.csv").write_text("z,y\n2,1\n")
    sample = sample_csv(files(tmp_path / "a.csv", tmp_path / "b.csv"))
    assert sample.types["x"] == f"not in {tmp_path / 'b.csv'}"
    assert sample.rows["y"].to_list() == [0, 1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"y,x,x\n0,1,2\n", r"a\.csv, line 1, x: two columns have this name"),
        ("a.csv", b"y,x\n", r"a\.csv: there are no rows"),
        ("a.csv", b"PAR1\x15\x04", r"a\.csv: is a Parquet file"),
        ("a.csv", bytes(range(128, 256)) * 20, r"a\.csv, line 1: not UTF-8"),
        ("a.csv", b"y,x\n0,\0\n1,\0\n", r"a\.csv, line 2: holds a NUL byte"),
        ("a.csv", b"y,x\n1\n0\n", r"a\.csv, line 2: has 1 column"),
    ],
)
def test_unusable_csv_is_refused_with_the_name_of_the_file(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        sample_csv(files(tmp_path / name))


def test_a_file_that_is_not_parquet_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(DataError, match=r"a\.parquet: not readable"):
        sample_parquet(files(tmp_path / "a.parquet"))
    with pytest.raises(DataError, match=r"b\.parquet: there are no rows"):
        sample_parquet(files(write(tmp_path / "b.parquet", {"x": pa.array([], pa.int64())})))


def test_parquet_types_that_no_schema_names_are_left_out_with_a_reason(tmp_path: Path) -> None:
    decimals = pa.array([decimal.Decimal("1.5"), decimal.Decimal("2.5")] * 2, pa.decimal256(50, 2))
    columns = {
        **ROWS,
        "": [1, 2, 3, 4],
        "n" * 201: ["a", "b", "a", "b"],
        "broken": pa.Array.from_buffers(pa.string(), 4, pa.array([b"\xff\xfe", b"a", b"b", b"c"]).buffers()),
        "map": pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
        "lists": pa.array([[[1]]] * 4),
        "struct": pa.array([{"a": 1}] * 4),
        "decimal": decimals,
        "view": pa.array(["a", "b", "a", "b"], pa.string_view()),
        "bytes": pa.array([b"a", b"b", b"b", b"b"]),
    }
    sample = sample_parquet(files(write(tmp_path / "a.parquet", columns)))
    choices = {choice.name: choice for choice in infer(sample).choices}
    left_out = {name: choice.why for name, choice in choices.items() if choice.is_left_out}
    assert set(left_out) == {"", "n" * 201, "broken", "map", "lists", "struct"}
    assert left_out["broken"] == "not UTF-8 text"
    assert "longer than 200" in left_out["n" * 201]
    assert left_out["struct"] == "not a number, a text or a list of them: struct<a: int64>"
    assert choices["decimal"].dense == {"transform": "standardise"}
    assert choices["view"].categorical == choices["bytes"].categorical == [{"type": "string"}]


def test_a_parquet_file_with_a_damaged_page_is_refused_with_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"label": [0, 1] * 500, "x": list(range(1000))})
    damaged = bytearray(path.read_bytes())
    damaged[10:300] = bytes(290)
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"a\.parquet: not readable"):
        sample_parquet(files(path))


def test_long_rows_of_parquet_are_sampled_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", {"label": [0, 1] * 500, "text": [f"{row:01000}" for row in range(1000)]})
    monkeypatch.setattr("dlrm.data.inspect.sample.parquet._MAX_BYTES", 100_000)
    monkeypatch.setattr("dlrm.data.inspect.sample.parquet._BATCH_BYTES", 10_000)
    rows = sample_parquet(files(path)).rows
    assert 80 <= rows.height <= 100
    step = 1000 // rows.height + 1
    assert rows["text"].cast(pl.Int64).to_list() == [row for row in range(1000) if row // 2 % step == 0]
