"""Scores of the rows of files, by the program that `dlrm predict` runs."""

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import dlrm.programs.evaluate
import dlrm.programs.predict
from dlrm.config import DataConfig
from dlrm.data.errors import DataError
from dlrm.exported_model.load import load_saved_model
from dlrm.exported_model.score_file import open_score_file
from tests.dlrm.data.packed_files import prepare_in_cache
from tests.dlrm.data.raw.criteo_files import criteo_lines, write_lines
from tests.dlrm.exported_model.conftest import HEADER, MADE_MODEL, Made, csv_rows, made_of_csv, write_csv
from tests.dlrm.exported_model.full_disk import files_of_at_most
from tests.dlrm.exported_model.model_factory import made_model

NAMES = HEADER.split(",")


@dataclass(frozen=True)
class Ran:
    code: int
    out: list[dict[str, Any]]
    err: str

    @property
    def result(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        return self.out[-1]


Predict = Callable[..., Ran]


@pytest.fixture
def predict(capsys: pytest.CaptureFixture[str]) -> Predict:
    """The program, in this process."""

    def run(*arguments: object) -> Ran:
        code = dlrm.programs.predict.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, [json.loads(line) for line in captured.out.splitlines()], captured.err)

    return run


@pytest.fixture
def scores_of(predict: Predict, tmp_path: Path) -> Callable[..., list[float | None]]:
    def run(*arguments: object) -> list[float | None]:
        output = tmp_path / "scores.parquet"
        predict(*arguments, "--output", output, "--overwrite").result  # noqa: B018, it says whether it went well
        return parquet.read_table(output)["probability"].to_pylist()

    return run


@pytest.fixture(scope="module")
def expected(made: Made) -> np.ndarray:
    """Of the rows that the model was made from."""
    lines = [row.split(",") for row in csv_rows(300)]
    rows: dict[str, list[Any]] = {name: [line[place] for line in lines] for place, name in enumerate(NAMES)}
    for name, of_text in (("age", float), ("clicks", float), ("user", int), ("site", str)):
        rows[name] = [of_text(value) if value else None for value in rows[name]]
    rows["tags"] = [value.split("|") if value else None for value in rows["tags"]]
    rows["items"] = [[int(part) for part in value.split("|")] if value else None for value in rows["items"]]
    return load_saved_model(made.path).predict(rows)


def without(rows: list[str], *names: str) -> list[str]:
    kept = [place for place, name in enumerate(NAMES) if name not in names]
    return [",".join(row.split(",")[place] for place in kept) for row in rows]


def test_scores_are_in_the_order_of_the_rows_with_labels_and_without(
    made: Made, expected: np.ndarray, scores_of: Callable[..., list[float]], tmp_path: Path
):
    np.testing.assert_allclose(scores_of(made.path, made.rows), expected, atol=1e-6)
    for absent in (["label"], ["weight", "label"], ["worth"]):
        rows = without([HEADER, *csv_rows(300)], *absent)
        bare = write_csv(tmp_path / "bare.csv", rows[1:], rows[0])
        np.testing.assert_allclose(scores_of(made.path, bare), expected, atol=1e-6)
    labels = [row.replace(row[0], "unknown", 1) for row in csv_rows(300)]
    np.testing.assert_allclose(scores_of(made.path, write_csv(tmp_path / "l.csv", labels)), expected, atol=1e-6)


def test_a_file_that_is_named_twice_is_refused_since_its_scores_would_be_missing(
    made: Made, predict: Predict, tmp_path: Path
):
    (tmp_path / "link.csv").symlink_to(made.rows)
    for second in (made.rows, tmp_path / "link.csv"):
        ran = predict(made.path, made.rows, second, "--output", tmp_path / "scores.csv")
        assert (ran.code, (tmp_path / "scores.csv").exists()) == (64, False)
        assert "the file is named twice (valid: each file once)" in ran.err


def test_scores_never_replace_the_rows_or_the_model(made: Made, predict: Predict, tmp_path: Path):
    rows = tmp_path / "rows.csv"
    rows.write_bytes(made.rows.read_bytes())
    (tmp_path / "link.csv").symlink_to(rows)
    needed = {output: output.read_bytes() for output in (rows, tmp_path / "link.csv")}
    for output in needed:
        ran = predict(made.path, rows, "--output", output, "--overwrite")
        assert ran.code == 64
        assert "--output: is one of the files that are scored" in ran.err
    inside = made.path / "scores.csv"
    inside.write_text("")
    ran = predict(made.path, rows, "--output", inside, "--overwrite")
    inside.unlink()
    assert (ran.code, "is a file in the directory of the model" in ran.err) == (64, True)
    assert {output: output.read_bytes() for output in needed} == needed


def test_parts_and_patterns_score_as_one_file(
    made: Made, expected: np.ndarray, scores_of: Callable[..., list[float]], tmp_path: Path
):
    rows = csv_rows(300)
    for number in (1, 2, 10):
        start, end = {1: (0, 100), 2: (100, 250), 10: (250, 300)}[number]
        text = "\n".join([HEADER, *rows[start:end]]).encode()
        (tmp_path / f"part-{number}.csv.gz").write_bytes(gzip.compress(text))
    np.testing.assert_allclose(scores_of(made.path, tmp_path / "part-*.gz"), expected, atol=1e-6)
    parts = [tmp_path / f"part-{number}.csv.gz" for number in (10, 1)]
    both = scores_of(made.path, *parts, "--threads", 1)
    np.testing.assert_allclose(both, np.concatenate([expected[250:], expected[:100]]), atol=1e-6)


def test_a_model_of_csv_scores_parquet_with_lists(
    made: Made, expected: np.ndarray, scores_of: Callable[..., list[float]], tmp_path: Path
):
    table = pl.read_csv(made.rows).drop("label", "worth")
    lists = [pl.col("tags").str.split("|"), pl.col("items").str.split("|").cast(pl.List(pl.Int64))]
    table.with_columns(lists).write_parquet(tmp_path / "rows", row_group_size=70)
    np.testing.assert_allclose(scores_of(made.path, tmp_path / "rows"), expected, atol=1e-6)


def test_prepared_rows_score_train_first_and_others_are_refused(
    made: Made, expected: np.ndarray, scores_of: Callable[..., list[float]], predict: Predict, tmp_path: Path
):
    scores = np.array(scores_of(made.path, made.packed))
    np.testing.assert_allclose(np.sort(scores), np.sort(expected), atol=1e-6)
    labels = np.fromfile(made.packed / "train" / "labels.bin", dtype=np.float32)
    dense = np.fromfile(made.packed / "train" / "dense.bin", dtype=np.float32).reshape(len(labels), -1)
    assert len(labels) < 300
    # Clicks of the first row in the file and in train/ are the same row's where it was not held out.
    clicks = [float(row.split(",")[3]) for row in csv_rows(300)]
    first = next(place for place in range(300) if np.isclose(np.log1p(clicks[place]), dense[0, -1]))
    assert np.isclose(scores[0], expected[first], atol=1e-6)
    others = made_of_csv(tmp_path / "others")
    config = others.data.model_copy(update={"train": [str(write_csv(tmp_path / "few.csv", csv_rows(60, seed=3)))]})
    packed = prepare_in_cache(config, tmp_path)
    ran = predict(made.path, packed, "--output", tmp_path / "o.csv")
    assert ran.code == 64
    assert "are encoded differently than those of the model" in ran.err


def test_a_model_of_prepared_rows_scores_raw_files(
    made: Made, expected: np.ndarray, scores_of: Callable[..., list[float]], tmp_path: Path
):
    data = DataConfig.model_validate({"train": [str(made.packed)], "format": "packed"})
    made_model(tmp_path / "model", data, None, model=MADE_MODEL)
    np.testing.assert_allclose(scores_of(tmp_path / "model", made.rows), expected, atol=1e-6)


@pytest.fixture(scope="module")
def criteo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of Criteo TSV."""
    place = tmp_path_factory.mktemp("criteo")
    data = DataConfig(train=[str(write_lines(place / "rows.tsv", criteo_lines(100)))])
    packed = prepare_in_cache(data, place)
    made_model(place / "model", data, packed)
    return place / "model"


def test_criteo_rows_score_the_same_in_any_format_with_or_without_label(
    criteo: Path, scores_of: Callable[..., list[float]], tmp_path: Path
):
    lines = criteo_lines(100)
    labelled = scores_of(criteo, write_lines(tmp_path / "rows.tsv", lines))
    bare = [line.partition("\t")[2] for line in lines]
    np.testing.assert_array_equal(scores_of(criteo, write_lines(tmp_path / "bare.tsv", bare)), labelled)
    unknown = [f"-1\t{line}" for line in bare]
    np.testing.assert_array_equal(scores_of(criteo, write_lines(tmp_path / "unknown.tsv", unknown)), labelled)
    model = load_saved_model(criteo)
    columns = {
        name: [int(text, 10 if name[0] == "I" else 16) if text else None for text in texts]
        for name, texts in zip(model.columns, zip(*(line.split("\t") for line in bare), strict=True), strict=True)
    }
    np.testing.assert_array_equal(model.predict(columns), labelled)
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    np.testing.assert_array_equal(scores_of(criteo, tmp_path / "rows.parquet"), labelled)


def criteo_texts(lines: list[str]) -> pa.Table:
    """Dense columns of integers, and the ids as the lines have them; blank where missing."""
    names = [*(f"I{number}" for number in range(1, 14)), *(f"C{number}" for number in range(1, 27))]
    columns = dict(zip(names, zip(*(line.split("\t")[1:] for line in lines), strict=True), strict=True))
    return pa.table(
        {
            name: pa.array([int(text) if text else None for text in texts]) if name[0] == "I" else pa.array(texts)
            for name, texts in columns.items()
        }
    )


def test_text_of_criteo_categories_is_hexadecimal_wherever_it_is(
    criteo: Path, scores_of: Callable[..., list[float]], tmp_path: Path
):
    lines = criteo_lines(100)
    labelled = scores_of(criteo, write_lines(tmp_path / "rows.tsv", lines))
    assert len(set(labelled)) > 90
    texts = criteo_texts(lines)
    model = load_saved_model(criteo)
    encoded = texts.set_column(13, "C1", texts["C1"].dictionary_encode())
    encoded = encoded.set_column(14, "C2", texts["C2"].cast(pa.binary()))
    for table in (texts, encoded, pl.DataFrame(texts)):
        np.testing.assert_array_equal(model.predict_table(table), labelled)
    rows = texts.to_pydict()
    # Digits alone, such as 00000010, are another number in decimal.
    in_decimal = [int(text) if text.isdigit() else None for text in rows["C26"]]
    in_hexadecimal = [int(text, 16) if text.isdigit() else None for text in rows["C26"]]
    assert np.any(model.predict({**rows, "C26": in_decimal}) != model.predict({**rows, "C26": in_hexadecimal}))
    rows["C3"] = [text.upper() or None for text in rows["C3"]]
    rows["C4"] = [int(text, 16) if text else None for text in rows["C4"]]
    np.testing.assert_array_equal(model.predict(rows), labelled)
    parquet.write_table(encoded, tmp_path / "rows.parquet")
    np.testing.assert_array_equal(scores_of(criteo, tmp_path / "rows.parquet"), labelled)
    for style in ("needed", "all_valid"):
        csv.write_csv(texts, tmp_path / "rows.csv", csv.WriteOptions(quoting_style=style))
        np.testing.assert_array_equal(scores_of(criteo, tmp_path / "rows.csv", "--format", "csv"), labelled)


@pytest.mark.parametrize("text", ["68fd1e6g", "0x12", "123456789", "+12", "-1", " 12", "12\n"])
def test_text_of_criteo_categories_that_is_not_hexadecimal_is_at_fault(criteo: Path, text: str):
    rows = criteo_texts(criteo_lines(3)).to_pydict()
    rows["C7"][1] = text
    with pytest.raises(DataError) as caught:
        load_saved_model(criteo).predict(rows)
    assert str(caught.value) == f"C7, row 1: {text!r} is not a hexadecimal id (valid: 1 to 8 of 0-9 a-f, or blank)"


def test_bytes_of_criteo_categories_that_are_not_utf_8_are_at_fault(criteo: Path):
    rows = criteo_texts(criteo_lines(3)).to_pydict()
    rows["C7"] = [b"12", b"\xff", None]
    with pytest.raises(DataError, match=r"C7, row 1: .* is not a hexadecimal id"):
        load_saved_model(criteo).predict(rows)


def test_lines_of_json_that_all_lack_a_key_are_refused(made: Made, tmp_path: Path):
    """Otherwise a key that is called otherwise one day would be missing in every row, without a word."""
    (tmp_path / "rows.jsonl").write_text(json.dumps(dict.fromkeys(NAMES[:-1], 1)) + "\n")
    with pytest.raises(DataError, match=rf"rows.jsonl, {NAMES[-1]}: no line has this key"):
        list(load_saved_model(made.path).predict_files(str(tmp_path / "rows.jsonl"), file_format="jsonl"))


def test_the_error_about_a_file_of_another_format_names_the_option(
    criteo: Path, made: Made, predict: Predict, tmp_path: Path
):
    header = write_csv(tmp_path / "rows.csv", ["1,2"], "I1,C1")
    message = {}
    for name, model, path, *options in [
        ("header", criteo, header),
        ("asked", made.path, made.rows, "--format", "parquet"),
    ]:
        ran = predict(model, path, *options, "--output", tmp_path / "scores.csv")
        assert ran.code == 64
        message[name] = ran.err
    trained = "; the model was trained on"
    others = "--format parquet, csv, jsonl or arrow"
    assert f"; or, if it is not criteo_tsv, {others}{trained} criteo_tsv)" in message["header"]
    assert 'is text (valid: format "csv" or "jsonl"' in message["asked"]
    assert f"; or, if it is not parquet, --format csv, jsonl or arrow{trained} csv)" in message["asked"]
    with pytest.raises(DataError, match="if it is not criteo_tsv, file_format parquet, csv, jsonl or arrow"):
        list(load_saved_model(criteo).predict_files(str(header)))


def test_predict_files_calls_its_arguments_by_their_names(made: Made, tmp_path: Path):
    model = load_saved_model(made.path)
    with pytest.raises(DataError, match=r"nothere.csv, patterns: "):
        list(model.predict_files(str(tmp_path / "nothere.csv")))
    with pytest.raises(DataError, match=r"^file_format: criteo_tsv has"):
        list(model.predict_files(str(made.rows), "criteo_tsv"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"age,clicks,site,user,tags\n", "line 1, items: there is no such column"),
        (b"age,clicks,site,user,tags,items\n1,2,s,3,t\n", "line 2: has 5 columns"),
        (b"age,clicks,site,user,tags,items\n1,2,s,3,t,1\nx,2,s,3,t,1\n", "line 3, age: 'x' is not a number"),
        (b"age,clicks,site,user,tags,items\n1,2,s,3.5,t,1\n", "line 2, user: '3.5' is not an integer"),
        (b"PAR1" + bytes(99), "is a truncated Parquet file"),
    ],
)
def test_a_bad_file_is_one_error_naming_file_line_and_field_and_nothing_is_written(
    made: Made, predict: Predict, tmp_path: Path, content: bytes, message: str
):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    ran = predict(made.path, path, "--output", tmp_path / "scores.csv")
    assert ran.code == 64
    assert ran.err.startswith(str(path))
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert {entry.name for entry in tmp_path.iterdir()} == {"bad.csv"}


def test_other_bad_input_is_one_error(made: Made, criteo: Path, predict: Predict, tmp_path: Path):
    output = ("--output", tmp_path / "scores.csv")
    for arguments, message in [
        ((made.path, tmp_path / "nowhere.csv", *output), "nowhere.csv, DATA: no such file"),
        ((tmp_path, made.rows, *output), "manifest.json: is missing"),
        ((made.path, made.rows, "--output", tmp_path / "scores.txt"), "valid: a name that ends in .parquet or .csv"),
        ((made.path, made.rows, "--output", tmp_path / "no" / "scores.csv"), "cannot be created: No such file"),
        ((made.path, made.rows, "--output", made.rows), "rows.csv, --output: exists already"),
        ((made.path, made.rows, "--format", "criteo_tsv", *output), "--format: criteo_tsv has the columns I1"),
        ((made.path, made.packed, "--format", "csv", *output), "--format: is not for packed directories"),
        ((criteo, made.rows, *output), "rows.csv, line 1: has 1 tab-separated column"),
    ]:
        ran = predict(*arguments)
        assert ran.code == 64
        assert message in ran.err
    assert list(tmp_path.iterdir()) == []


def test_bad_rows_have_no_score_where_that_is_allowed(
    made: Made, expected: np.ndarray, predict: Predict, scores_of: Callable[..., list[float | None]], tmp_path: Path
):
    rows = csv_rows(300)
    rows[7], rows[250] = "0,1,old,1,s,1,t,1", "half a row"
    path = write_csv(tmp_path / "rows.csv", rows)
    scores = scores_of(made.path, path, "--max-bad-fraction", "0.01")
    assert [place for place, score in enumerate(scores) if score is None] == [7, 250]
    good = np.array([place not in (7, 250) for place in range(300)])
    np.testing.assert_allclose(np.array(scores)[good].astype(float), expected[good], atol=1e-6)
    ran = predict(made.path, path, "--max-bad-fraction", "0.01", "--output", tmp_path / "s.csv")
    assert (ran.result["num_rows"], ran.result["num_bad_rows"]) == (300, 2)
    first, _ = (line["message"] for line in ran.out if line["kind"] == "note")
    assert first.startswith(f"{path}, line 9, age: 'old'")
    assert (tmp_path / "s.csv").read_text().splitlines()[8] == ""
    ran = predict(made.path, path, "--max-bad-fraction", "0.001", "--output", tmp_path / "t.csv")
    assert ran.code == 64
    assert "--max-bad-fraction: 2 of 300 rows are bad" in ran.err
    assert not (tmp_path / "t.csv").exists()


def test_rows_on_which_the_model_overflows_have_no_score_and_are_counted(made: Made, predict: Predict, tmp_path: Path):
    rows = csv_rows(3)
    rows[1] = "0,1,3e38,1,s1,1,t1,1"
    ran = predict(made.path, write_csv(tmp_path / "rows.csv", rows), "--output", tmp_path / "s.csv")
    scores = (tmp_path / "s.csv").read_text().splitlines()[1:]
    assert [bool(score) for score in scores].count(False) == ran.result["num_undefined"]


def test_files_without_rows_have_no_scores(made: Made, scores_of: Callable[..., list[float]], tmp_path: Path):
    assert scores_of(made.path, write_csv(tmp_path / "rows.csv", [])) == []


def test_scores_as_lines_are_those_of_the_file(made: Made, predict: Predict, tmp_path: Path):
    with (tmp_path / "lines").open("wb") as file:
        predict(made.path, made.rows, "--lines-to", os.dup(file.fileno()))
    predict(made.path, made.rows, "--output", tmp_path / "scores.csv")
    lines = (tmp_path / "lines").read_text().splitlines()
    assert (tmp_path / "scores.csv").read_text().splitlines() == ['"probability"', *lines]


def test_progress_is_reported_as_json_and_the_last_line_is_the_result(made: Made, predict: Predict, tmp_path: Path):
    ran = predict(made.path, made.rows, "--output", tmp_path / "scores.csv")
    *progress, last = [line["kind"] for line in ran.out]
    assert last == "result"
    # A slow machine reports more than once.
    assert set(progress) == {"progress"}
    assert ran.result["num_rows"] == 300
    assert ran.result["peak_memory_bytes"] > 1 << 20


def test_a_half_written_output_is_removed_after_an_error_and_overwritten_after_a_kill(tmp_path: Path):
    output = tmp_path / "scores.parquet"
    (tmp_path / "scores.parquet.part").write_bytes(b"of a kill" * 1000)
    with pytest.raises(AttributeError), open_score_file(output, overwrite=False) as write:
        write("no scores")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "scores.parquet.part").write_bytes(b"of a kill" * 1000)
    with open_score_file(output, overwrite=False) as write:
        write(np.array([0.5, np.nan], dtype=np.float32))
    assert parquet.read_table(output)["probability"].to_pylist() == [0.5, None]
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet"])
def test_where_the_disk_is_full_the_error_names_the_output_and_nothing_is_left(
    made: Made, predict: Predict, tmp_path: Path, name: str
):
    with files_of_at_most(100):
        ran = predict(made.path, made.rows, "--output", tmp_path / name)
    assert (ran.code, list(tmp_path.iterdir())) == (1, [])
    assert f"{tmp_path / name}: cannot be written: File too large" in ran.err


def test_an_output_that_appears_meanwhile_is_kept(tmp_path: Path):
    output = tmp_path / "scores.csv"
    with pytest.raises(DataError, match="exists already"), open_score_file(output, overwrite=False):
        output.write_text("of somebody else")
    assert output.read_text() == "of somebody else"
    with open_score_file(output, overwrite=True) as write:
        write(np.array([0.25], dtype=np.float32))
    assert output.read_text() == '"probability"\n0.25\n'


def test_two_processes_do_not_write_one_output(tmp_path: Path):
    output = tmp_path / "scores.csv"
    with open_score_file(output, overwrite=False) as write:
        with pytest.raises(DataError, match="another process is writing it"), open_score_file(output, overwrite=False):
            pytest.fail("it was opened twice")
        write(np.array([0.25], dtype=np.float32))
    assert output.read_text() == '"probability"\n0.25\n'
