"""`dlrm predict`, `dlrm evaluate` and `dlrm export`: scores of a real model, and what is refused."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from pyarrow import parquet

from dlrm.config import JobConfig, resolve
from dlrm.record import RunDirectory
from tests.cli.conftest import Command, command, run
from tests.dlrm.exported_model.conftest import Made, csv_rows, made_of_csv, write_csv


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made_of_csv(tmp_path_factory.mktemp("made"))


def test_scores_are_lines_on_stdout_and_nothing_else_is(made: Made) -> None:
    ended = run("predict", made.path, made.rows)
    assert ended.returncode == 0, ended.stderr
    scores = [float(line) for line in ended.stdout.splitlines()]
    assert len(scores) == 300
    assert all(0 < score < 1 for score in scores)
    assert "predicting" in ended.stderr


@pytest.mark.slow
def test_scores_go_to_a_file_and_what_was_done_to_stdout(made: Made, tmp_path: Path) -> None:
    output = tmp_path / "scores.parquet"
    ended = run("predict", made.path, made.rows, "--output", output, "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["output"], told["num_rows"], told["num_bad_rows"]) == (str(output), 300, 0)
    assert parquet.read_table(output).num_rows == 300
    again = run("predict", made.path, made.rows, "--output", output)
    assert again.returncode == 2
    assert "scores.parquet, --output: exists already (valid: another name, or --overwrite)" in again.stderr
    assert "300" in run("predict", made.path, made.rows, "--output", output, "--overwrite").stdout


@pytest.mark.slow
def test_bad_rows_end_in_exit_code_2_or_are_warned_of(made: Made, tmp_path: Path) -> None:
    rows = csv_rows(300)
    rows[4] = "0,1,old,1,s,1,t,1"
    path = write_csv(tmp_path / "rows.csv", rows)
    ended = run("predict", made.path, path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"error: {path}, line 6, age: 'old' is not a number" in ended.stderr
    ended = run("predict", made.path, path, "--max-bad-fraction", "0.1")
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[4] == ""
    assert "warning: no score for 1 bad row" in ended.stderr


@pytest.mark.slow
def test_a_reader_that_has_enough_ends_it_quietly(made: Made, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "rows.csv", csv_rows(300) * 400)
    with subprocess.Popen(command("predict", made.path, path), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert 0 < float(child.stdout.readline()) < 1
        child.stdout.close()
        said = child.stderr.read()
    assert child.returncode == 128 + signal.SIGPIPE
    assert b"rror" not in said


@pytest.mark.slow
def test_an_interrupt_leaves_nothing(made: Made, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "rows.csv", csv_rows(300) * 2000)
    output = tmp_path / "scores.csv"
    arguments = command("predict", made.path, path, "--output", output)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        next(line for line in child.stderr if line.startswith("predicting"))
        child.send_signal(signal.SIGINT)
        _, said = child.communicate()
    assert child.returncode == 130
    assert "stopped; nothing was written" in said
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_evaluate_takes_files_of_another_format(made: Made, tmp_path: Path) -> None:
    same = run("evaluate", made.path, made.rows, "--format", "csv", "--json")
    assert same.returncode == 0, same.stderr
    assert json.loads(same.stdout) == json.loads(run("evaluate", made.path, made.rows, "--json").stdout)
    other = run("evaluate", made.path, made.rows, "--format", "criteo_tsv")
    assert other.returncode == 2
    assert other.stderr.startswith("error: --format: criteo_tsv has the columns I1 to I13")
    rows = write_csv(tmp_path / "rows.csv", ["0,1,old,1,s,1,t,1"])
    bad = run("evaluate", made.path, rows)
    assert bad.returncode == 2
    assert bad.stderr.startswith(f"error: {rows}, line 2, age: 'old' is not a number")
    assert bad.stderr.count("\n") == 1
    empty = write_csv(tmp_path / "empty.csv", [])
    assert run("evaluate", made.path, empty).stderr.startswith(f"error: {empty}, DATA: there are no rows (valid: ")


@pytest.mark.slow
def test_a_model_is_exported_for_the_hub_and_scores_as_before(made: Made, tmp_path: Path) -> None:
    ended = run("export", made.path, "--to-hub", tmp_path / "hub", "--json")
    assert ended.returncode == 0, ended.stderr
    said = " ".join(ended.stderr.split())
    assert "before you publish it: paths, labels, trackers and launcher of the job are left out" in said
    # Every file that holds the names of the rows is in it.
    files = [path for path in (tmp_path / "hub").iterdir() if path.is_file()]
    holders = [path.name for path in files if b"rows.csv" in path.read_bytes()]
    assert sorted(holders) == ["MODEL_CARD.md", "README.md", "config.json"]
    assert "names of columns and files are in README.md, MODEL_CARD.md and config.json" in said
    told = json.loads(ended.stdout)
    assert (told["model"], told["auc"]) == (str(tmp_path / "hub"), 0.75)
    scores = [run("predict", path, made.rows).stdout for path in (made.path, tmp_path / "hub")]
    assert scores[0] == scores[1] != ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["predict", "nowhere", "rows.csv"], "nowhere: no such directory (valid: the model/ directory of a run)"),
        (["predict", ".", "rows.csv"], "is the directory of a run; its model is model"),
        (["predict", "model", "rows.csv", "--json"], "--json: valid only with --output"),
        (["predict", "model", "rows.csv", "--overwrite"], "--overwrite: valid only with --output"),
        (["evaluate", "."], "is the directory of a run; its model is model"),
        (["evaluate", "nowhere/model", "rows.tsv"], "nowhere/model: no such directory"),
        (["evaluate", ".", "--checkpoint", "newest"], ".: not the directory of a run"),
        (["export", ".", "-o", "new"], ".: not the directory of a run"),
        (["export", "run", "-o", "run"], "--output run: already exists (valid: a new directory)"),
        (["export", "run"], "--output, --to-hub: one of them is required"),
        (["export", "run", "-o", "a", "--to-hub", "b"], "--output, --to-hub: one of them is required"),
        (["export", "run", "--to-hub", "run"], "--to-hub run: already exists (valid: a new directory)"),
        (
            ["export", "run", "--to-hub", "new"],
            "run: contains no model: a run has one once it has succeeded (valid:",
        ),
        (["export", "run", "--to-hub", "new", "--checkpoint", "newest"], "--checkpoint: valid with --output"),
        (["evaluate", "run"], "is the directory of a run without a model (valid: --checkpoint newest)"),
        pytest.param(
            ["export", "run", "-o", "new"],
            "has no complete checkpoint (valid: a run that has one)",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_scored_or_exported_is_said_at_once(
    dlrm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    (tmp_path / "model").mkdir()
    run = RunDirectory(tmp_path / "run")
    run.checkpoints.mkdir(parents=True)
    run.spec.write_text(resolve(JobConfig.model_validate({"data": {"format": "synthetic"}})).model_dump_json())
    monkeypatch.chdir(tmp_path)
    ended = dlrm(*arguments)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert said in ended.err
