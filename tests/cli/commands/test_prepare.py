"""`dlrm prepare`, with the real program."""

import gzip
import json
import os
import shlex
import signal
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cli.commands.infer import derive_job_name
from cli.local.documents import read_job
from dlrm.config import parse_job
from tests.cli.conftest import command, run

N = 4000
GOOD = "1\t" + "\t".join(["1"] * 13) + "\t" + "\t".join(["0a"] * 26) + "\n"


def table() -> pl.DataFrame:
    """Rows that can be learned from, and columns that cannot."""
    draw = np.random.default_rng(0)
    columns = {
        "click": (draw.random(N) < 0.3).astype(np.int64),
        "sample_weight": draw.random(N),
        "price": np.where(draw.random(N) < 0.2, np.nan, draw.normal(10.0, 2.0, N)),
        "views": (draw.pareto(1.0, N) * 3).astype(np.int64),
        "hour": draw.integers(0, 24, N),
        "user_id": draw.integers(0, 500, N),
        'si"te\n': [f"site, {number}" for number in draw.integers(0, 30, N)],
        "tags": ["|".join(f"t{n}" for n in range(1 + row % 3)) for row in range(N)],
        "request": [f"r{row}" for row in range(N)],
        "version": np.ones(N),
        "empty": [None] * N,
    }
    return pl.DataFrame(columns).with_columns(pl.col("price").fill_nan(None))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_criteo_files_are_prepared_and_figures_told(here: Path, dlrm: Callable[..., Any]) -> None:
    for day in range(2):
        lines = [f"{row % 2}{GOOD[1:]}" for row in range(100)]
        (here / f"day_{day}.gz").write_bytes(gzip.compress("".join(lines).encode()))
    ended = dlrm("prepare", "day_*.gz", "--output", "packed", "--threads", "1", "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out.splitlines()[-1])
    assert sum(result["num_rows"].values()) == 200
    assert result["label_rate"] == pytest.approx(0.5)
    assert result["output"] == "packed"
    written = sum(file.stat().st_size for file in (here / "packed").rglob("*.*") if file.name != "meta.json")
    assert result["num_bytes"] == written
    assert "preparing" in ended.err
    again = dlrm("prepare", "day_*.gz", "--output", "packed")
    assert again.code == 2
    assert "packed" in again.err


def test_a_document_is_prepared_and_bad_rows_are_noted_with_their_line(here: Path, dlrm: Callable[..., Any]) -> None:
    (here / "day.tsv").write_text(GOOD * 50 + "7\n" + GOOD * 50)
    (here / "job.json").write_text('{"data": {"train": ["day.tsv"], "max_bad_fraction": 0.1}}')
    ended = dlrm("prepare", "job.json", "-o", "packed")
    assert ended.code == 0, ended.err
    for word in ("held out, 1 bad rows left out", "label rate", "C26", "checksum", "rows/s", "peak memory"):
        assert word in ended.out
    assert "day.tsv, line 51" in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["day.tsv"], "--output: missing (valid: the directory"),
        (["nowhere.tsv", "-o", "x"], "no such file: nowhere.tsv"),
        (["", "-o", "x"], "empty path"),
        (["night_*.tsv", "-o", "x"], "the pattern matches no file: night_*.tsv"),
        (["job.json", "day.tsv", "-o", "x"], "pass either one job document or data files"),
        (["day.tsv", "job.json", "-o", "x"], "pass either one job document or data files"),
        (["nowhere.toml", "-o", "x"], "nowhere.toml: No such file"),
        (["rows.parquet", "-o", "x"], "dlrm prepare --infer rows.parquet --output job.toml"),
        (["rows.csv.gz", "-o", "x"], "dlrm prepare --infer rows.csv.gz --output job.toml"),
        (["synthetic.json", "-o", "x"], "format synthetic needs no preparation"),
        (["missing.json", "-o", "x"], "data.train.0: no such file"),
        (["bad.tsv", "-o", "x"], "bad.tsv, line 2, label"),
        pytest.param(["empty.tsv", "-o", "x"], "the file is empty", marks=pytest.mark.slow),
        (["emptiness", "-o", "x"], "the directory contains no data files: emptiness"),
        pytest.param(["day.tsv", "-o", "day.tsv"], "day.tsv", marks=pytest.mark.slow),
        (["day.tsv", "-o", "x", "--extend", "nowhere"], "--extend nowhere: no such directory"),
        pytest.param(["day.tsv", "-o", "x", "--extend", "emptiness"], "emptiness", marks=pytest.mark.slow),
        (["day.tsv", "-o", "x", "--label", "y"], "--label: valid only with --infer"),
        (["day.tsv", "-o", "x", "--positive", "y"], "--positive: valid only with --infer"),
        pytest.param(
            ["day.tsv", "--infer", "--weight", "I1"],
            "--weight: Criteo TSV has columns of its own",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["rows.csv", "--infer", "--weight", "kilo"], "--weight: there is no column 'kilo'", marks=pytest.mark.slow
        ),
        (["day.tsv", "--infer", "--extend", "x"], "--extend: not valid with --infer"),
        (["day.tsv", "--infer", "-o", "x.json"], "a file name that ends in .toml"),
        (["rows.csv", "--infer", "-o", "taken.toml"], "taken.toml: already exists"),
        pytest.param(
            ["rows.csv", "--infer", "-o", "nowhere/job.toml"], "nowhere/job.toml: No such file", marks=pytest.mark.slow
        ),
        pytest.param(["rows.csv", "--infer", "--label", "clik"], "no column 'clik'", marks=pytest.mark.slow),
        (["unclear.csv", "--infer"], "columns of 0 and 1 are bought, seen"),
        (["rows.csv", "--infer", "--eval", "nowhere.csv"], "no such file: nowhere.csv"),
        pytest.param(
            ["day.tsv", "--infer", "--eval", "rows.csv"], "the first line is not Criteo TSV", marks=pytest.mark.slow
        ),
        (["day.tsv", "-o", "x", "--eval", "day.tsv"], "--eval: valid only with --infer"),
    ],
)
def test_bad_input_is_one_line_that_says_what_to_do(
    here: Path, dlrm: Callable[..., Any], arguments: list[str], said: str
) -> None:
    (here / "day.tsv").write_text(GOOD * 50)
    (here / "bad.tsv").write_text(GOOD + "2" + GOOD[1:] + GOOD * 50)
    (here / "empty.tsv").touch()
    (here / "emptiness").mkdir()
    (here / "rows.parquet").touch()
    (here / "rows.csv.gz").write_bytes(b"x")
    (here / "rows.csv").write_text("click,x\n0,5\n1,7\n")
    (here / "unclear.csv").write_text("x,bought,seen,z\n5,0,1,1\n7,1,0,2\n")
    (here / "taken.toml").touch()
    (here / "job.json").write_text('{"data": {"train": ["day.tsv"]}}')
    (here / "missing.json").write_text('{"data": {"train": ["night.tsv"]}}')
    (here / "synthetic.json").write_text('{"data": {"format": "synthetic"}}')
    before = {path.name for path in here.iterdir()}
    ended = dlrm("prepare", *arguments)
    assert ended.code == 2
    (line,) = [line for line in ended.err.splitlines() if line.startswith("error:")]
    assert said in line
    assert {path.name for path in here.iterdir()} == before


@pytest.mark.slow
def test_an_interrupt_leaves_what_the_next_call_goes_on_from(here: Path) -> None:
    (here / "day.tsv").write_text(GOOD * 400_000)
    arguments = ("prepare", "day.tsv", "-o", "packed", "--json")
    preparing = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert preparing.stderr is not None
    next(line for line in preparing.stderr if line.startswith("preparing"))
    os.kill(preparing.pid, signal.SIGINT)
    _, said = preparing.communicate()
    assert preparing.returncode == 75
    assert "repeat the same command to continue" in said
    assert not (here / "packed").exists()
    ended = run(*arguments)
    assert ended.returncode == 0, ended.stderr
    assert sum(json.loads(ended.stdout)["num_rows"].values()) == 400_000


@pytest.mark.parametrize("kind", ["parquet", pytest.param("csv", marks=pytest.mark.slow)])
def test_an_inferred_document_prepares_as_it_stands(here: Path, dlrm: Callable[..., Any], kind: str) -> None:
    (here / "logs").mkdir()
    if kind == "parquet":
        table().with_columns(pl.col("tags").str.split("|")).write_parquet(here / "logs" / "day 1.parquet")
        site = 'si"te\n'
    else:
        table().rename({'si"te\n': "site"}).write_csv(here / "logs" / "day 1.csv")
        site = "site"
    ended = dlrm("prepare", "--infer", "logs", "--output", "job.toml")
    assert ended.code == 0, ended.err
    document, job = read_job(here / "job.toml")
    assert document["data"]["train"] == ["logs"]
    assert parse_job(document) == job
    schema = job.data.table_schema
    assert schema is not None
    assert (schema.label, schema.weight) == ("click", "sample_weight")
    assert {column.name: column.transform for column in schema.dense} == {"price": "standardise", "views": "log"}
    assert {column.feature: (column.type, column.multi_hot, column.bucketize) for column in schema.categorical} == {
        "price:buckets": ("string", False, 16),
        "views:buckets": ("string", False, 16),
        "hour": ("integer", False, None),
        "user_id": ("integer", False, None),
        site: ("string", False, None),
        "tags": ("string", True, None),
    }
    text = (here / "job.toml").read_text()
    for name, why in (("request", "a different value in every"), ("version", "constant"), ("empty", "missing")):
        assert any(f'"{name}": ' in line and why in line for line in text.splitlines() if line.startswith("#"))
    prepared = dlrm("prepare", "job.toml", "-o", "packed", "--threads", "1", "--json")
    assert prepared.code == 0, prepared.err
    result = json.loads(prepared.out.splitlines()[-1])
    assert sum(result["num_rows"].values()) == N
    assert list(result["table_sizes"]) == [column.feature for column in schema.categorical]


@pytest.mark.slow
def test_a_document_that_cannot_be_trained_is_written_and_said_to(here: Path, dlrm: Callable[..., Any]) -> None:
    num_columns = 10_001
    lines = [",".join(["click", *(f"x{column}" for column in range(num_columns))])]
    # Columns with the same content as another would be left out.
    values = [[f"{row * (column + 1) % 100_003}.5" for column in range(num_columns)] for row in range(6)]
    lines += [",".join([str(row % 2), *of_row]) for row, of_row in enumerate(values)]
    (here / "rows.csv").write_text("\n".join(lines) + "\n")
    ended = dlrm("prepare", "--infer", "rows.csv", "-o", "job.toml")
    assert ended.code == 0, ended.err
    assert "wrote job.toml: 10,001 dense features and 0 categorical features" in ended.err
    assert "is not valid yet" in ended.err
    assert "data.schema.dense" in ended.err
    assert '"x10000"' in (here / "job.toml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "counts", "none"),
    [
        ("{row}.5", "1 dense feature and 0 categorical features", "categorical"),
        ("s{row}", "0 dense features and 1 categorical feature", "dense"),
    ],
)
def test_columns_of_one_kind_are_enough_to_train_from(
    here: Path, dlrm: Callable[..., Any], value: str, counts: str, none: str
) -> None:
    rows = [f"{row % 2},{value.format(row=row % 9)}" for row in range(300)]
    (here / "rows.csv").write_text("\n".join(["click,x", *rows]) + "\n")
    ended = dlrm("prepare", "--infer", "rows.csv", "-o", "job.toml")
    assert ended.code == 0, ended.err
    assert f"wrote job.toml: {counts}" in ended.err
    assert "the label is click: by its name; 0 or 1, 50.0% are 1" in ended.err
    assert "dlrm train job.toml" in ended.err
    assert f"{none} = []  # none found" in (here / "job.toml").read_text()
    assert dlrm("data", "inspect", "job.toml", "--html", "page.html").code == 0
    assert dlrm("prepare", "job.toml", "-o", "packed", "--threads", "1").code == 0
    for source in ("job.toml", "packed"):
        report = json.loads(dlrm("data", "inspect", source, "--json").out.splitlines()[-1])
        assert (len(report["dense"]), len(report["categorical"])) == ((0, 1) if none == "dense" else (1, 0))


def test_names_that_a_terminal_would_obey_are_written_out(here: Path, dlrm: Callable[..., Any]) -> None:
    name = "x\x1b[31m\x9b2J\u202e[/bold]"
    rows = "".join(f"{row % 2},{row % 5},{row / 7}\n" for row in range(300))
    (here / "rows.csv").write_text(f'click,"{name}",price\n{rows}')
    ended = dlrm("prepare", "--infer", "rows.csv")
    assert ended.code == 0, ended.err
    assert all(letter.isprintable() or letter == "\n" for letter in ended.out)
    document = tomllib.loads(ended.out)
    assert document["data"]["schema"]["categorical"][0]["name"] == name
    (here / "job.toml").write_text(ended.out)
    for arguments in (["prepare", "job.toml", "-o", "packed"], ["data", "inspect", "job.toml"]):
        ended = dlrm(*arguments)
        assert ended.code == 0, ended.err
        assert r"x\x1b[31m\x9b2J\u202e[/bold]" in ended.out
        assert all(letter.isprintable() or letter == "\n" for letter in ended.out + ended.err)


def test_without_an_output_the_document_goes_to_stdout(here: Path, dlrm: Callable[..., Any]) -> None:
    (here / "rows.csv").write_text("0,a,2.5\n1,b,3.5\n")
    ended = dlrm("prepare", "--infer", "rows.csv", "--label", "column_1")
    assert ended.code == 0, ended.err
    (here / "job.toml").write_text(ended.out)
    _, job = read_job(here / "job.toml")
    assert job.data.table_schema is not None
    assert job.data.table_schema.columns == ["column_1", "column_2", "column_3"]


@pytest.mark.parametrize(
    ("source", "name"),
    [("logs/day 1.csv.gz", "day-1"), ("s3://b/logs/*.parquet", "inferred"), ("x" * 99 + ".csv", "x" * 63)],
)
def test_a_job_is_named_after_its_files(source: str, name: str) -> None:
    assert derive_job_name(source) == name
    assert parse_job({"name": name, "data": {"format": "synthetic"}}).name == name


@pytest.mark.slow
def test_criteo_files_are_recognised(here: Path, dlrm: Callable[..., Any]) -> None:
    lines = [f"{row % 2}{GOOD[1:]}" for row in range(400)]
    (here / "day_0.tsv").write_text("".join(lines))
    (here / "day_1.gz").write_bytes(gzip.compress("".join(lines).encode()))
    ended = dlrm("prepare", "--infer", "day_0.tsv", "--eval", "day_1.gz", "-o", "job.toml")
    assert ended.code == 0, ended.err
    _, job = read_job(here / "job.toml")
    assert (job.data.format, job.data.train, job.data.eval) == ("criteo_tsv", ["day_0.tsv"], ["day_1.gz"])
    assert "400 of 400 rows" in (here / "job.toml").read_text()


@pytest.mark.slow
def test_evaluation_files_are_named_and_their_columns_checked(here: Path, dlrm: Callable[..., Any]) -> None:
    rows = [f"{'yes' if row % 3 else 'no'},{row % 9},{row % 7}" for row in range(300)]
    (here / "train.csv").write_text("\n".join(["bought_it,a,b", *rows]) + "\n")
    (here / "test.csv").write_text(
        "\n".join(["a,bought_it", *(",".join(row.split(",")[1::-1]) for row in rows)]) + "\n"
    )
    ended = dlrm("prepare", "--infer", "train.csv", "--eval", "test.csv", "-o", "job.toml")
    assert ended.code == 0, ended.err
    document, job = read_job(here / "job.toml")
    assert job.data.eval == ["test.csv"]
    assert "eval_fraction" not in document["data"]
    assert job.data.raw_schema.positive == "yes"
    assert '"b": not in' in (here / "job.toml").read_text()
    assert f"warning: b is left out: not in {here / 'test.csv'}" in ended.err
    prepared = dlrm("prepare", "job.toml", "-o", "packed", "--threads", "1", "--json")
    assert prepared.code == 0, prepared.err
    result = json.loads(prepared.out.splitlines()[-1])
    assert result["num_rows"] == {"train": 300, "eval": 300}
    assert result["label_rate"] == pytest.approx(2 / 3)


def csv(header: str, *rows: str) -> str:
    return "\n".join([header, *rows]) + "\n"


UNREADABLE = csv("label,a,b", *(f"{row % 2},{row % 9},{row % 7}" for row in range(90)), *(['1,"a', 'b",3'] * 5))
LEAKING = csv("click,score,site", *(f"{row % 2},{row % 2 * 5 + row % 3},{row % 9}" for row in range(300)))
INFINITE = csv(
    "label,a,price", *(f"{row % 2},{row % 7}.5,{'1e999' if row % 29 == 5 else row % 31 + 0.5}" for row in range(300))
)
WEIGHTED = csv(
    "label,conversion,site,weight",
    *(f"{'b' if row % 3 else 'a'},{int(row % 12 == 0)},{row % 9},{1 + row % 5}" for row in range(600)),
)
RATINGS = csv("userId,movieId,rating", *(f"{row % 40},{row % 30},{(row % 10 + 1) / 2}" for row in range(600)))


@pytest.mark.parametrize(
    ("rows", "options", "said", "in_document"),
    [
        (
            UNREADABLE,
            "",
            ["warning: 10.00% of the lines cannot be read as rows, and max_bad_fraction leaves them out"],
            "max_bad_fraction = 0.2",
        ),
        pytest.param(
            LEAKING,
            "",
            ["warning: score alone predicts the label with an AUC of 1.0000"],
            '# WARNING: "score" alone predicts',
            marks=pytest.mark.slow,
        ),
        pytest.param(
            INFINITE,
            "",
            ["warning: price: 11 of 300 values of the sample are infinite, beyond float32"],
            "price",
            marks=pytest.mark.slow,
        ),
        (
            WEIGHTED,
            "--label label",
            [
                "weight is a feature; --weight weight makes it the weight of the rows",
                "warning: label: 'a', the rarer value, is taken for 1 and 'b' for 0",
                'positive = "b" in the document, or --label label --positive b, turns the labels round',
                "warning: conversion: left out, since it has 1 in 50 rows, all with label 1",
            ],
            'positive = "a"',
        ),
        pytest.param(
            WEIGHTED,
            "--label label --positive b --weight weight",
            ["the weight is weight: as told, mean 3"],
            'weight = "weight"',
            marks=pytest.mark.slow,
        ),
        (
            RATINGS,
            "--label rating --positive '>= 3'",
            ["the label is rating: as told; >= 3 is 1, 50.0% are 1"],
            'positive = ">= 3"',
        ),
    ],
)
def test_what_an_inference_found_is_said_and_written(
    here: Path, dlrm: Callable[..., Any], rows: str, options: str, said: list[str], in_document: str
) -> None:
    (here / "rows.csv").write_text(rows)
    ended = dlrm("prepare", "--infer", "rows.csv", "-o", "job.toml", *shlex.split(options))
    assert ended.code == 0, ended.err
    for words in said:
        assert words in ended.err
    assert in_document in (here / "job.toml").read_text()


def test_ratings_without_a_comparison_are_refused_with_one(here: Path, dlrm: Callable[..., Any]) -> None:
    (here / "rows.csv").write_text(RATINGS)
    unclear = dlrm("prepare", "--infer", "rows.csv", "-o", "job.toml")
    assert (unclear.code, "(valid: --label rating --positive '>= 3')" in unclear.err) == (2, True)


@pytest.mark.slow
def test_values_that_are_taken_as_missing_are_counted_by_column(here: Path, dlrm: Callable[..., Any]) -> None:
    (here / "rows.csv").write_text(INFINITE)
    assert dlrm("prepare", "--infer", "rows.csv", "-o", "job.toml").code == 0
    prepared = dlrm("prepare", "job.toml", "-o", "packed", "--threads", "1", "--json")
    assert prepared.code == 0, prepared.err
    assert "warning: price: 11 values are infinite, beyond float32 or a limit of 64-bit integers" in prepared.err
    assert len(json.loads(prepared.out.splitlines()[-1])["odd_values"]) == 1


@pytest.mark.parametrize("header", [pytest.param("label,x,kind\n", marks=pytest.mark.slow), ""])
def test_a_column_that_only_the_paths_have_is_used_or_said_to_be_left_out(
    here: Path, dlrm: Callable[..., Any], header: str
) -> None:
    for country in ("US", "DE"):
        directory = here / "clicks" / f"country={country}" / "kind=a"
        directory.mkdir(parents=True)
        rows = "".join(f"{row % 2},{row % 9},a\n" for row in range(50))
        (directory / "part-0.csv").write_text(header + rows)
    ended = dlrm("prepare", "--infer", "clicks", "-o", "job.toml")
    assert ended.code == 0, ended.err
    warning = "warning: country is only in the paths of the files (country=…), and is not read"
    assert (warning in ended.err) != bool(header)
    names = [column.name for column in read_job(here / "job.toml")[1].data.raw_schema.categorical]
    assert ("country" in names) == bool(header)
