"""`dlrm tune` with the real trainer."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.local.documents import read_job
from dlrm.config import parse_job
from dlrm.record import EXIT_STOPPED
from tests.cli.conftest import command, run
from tests.patience import wait_until

DOCUMENT = """
name = "small"  # a name

[data]
format = "synthetic"
synthetic = { num_rows = 20_000, num_ids = 50 }

[model]
architecture = "dlrm"
bottom_mlp = [8, 4]
top_mlp = [8, 1]

[batch]
global_size = 1024

[run]
epochs = 12

[resources]
workers_per_node = 1
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The job document, in the present directory."""
    monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(DOCUMENT)
    return path


def read_trials(output: Path) -> list[dict[str, Any]]:
    path = output / "trials.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
@pytest.mark.timeout(900)  # nine runs, one after another
def test_an_interrupted_tuning_continues_to_a_document_that_trains(job: Path, tmp_path: Path) -> None:
    output, arguments = tmp_path / "tuned", ["tune", job, "--trials", 3, "--minutes", 1000, "-o", tmp_path / "tuned"]
    runs = output / "runs"
    # An interrupt, which stops the trial that is running.
    tuning = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until((runs / "trial-2-of-33-percent" / "lock").exists)
    os.kill(tuning.pid, signal.SIGINT)
    _, said = tuning.communicate()
    assert (tuning.returncode, "repeat the same command" in said) == (EXIT_STOPPED, True), said
    before = (output / "trials.jsonl").read_text()
    ended = run(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr

    trials = read_trials(output)
    assert (output / "trials.jsonl").read_text().startswith(before)
    shares = [(trial["trial"], round(3 * trial["fraction"])) for trial in trials]
    best_of_short = min(trials[1:4], key=lambda trial: trial["validation_log_loss"])
    assert shares == [(0, 3), (1, 1), (2, 1), (3, 1), (best_of_short["trial"], 3)]
    # Of 16,200 rows, up to the few by which a split by hash differs: 12 epochs, or 4.
    expected = [round(trial["fraction"] * 12 * 16_200 / 1024) for trial in trials]
    assert [trial["num_steps"] for trial in trials] == pytest.approx(expected, rel=0.02)
    assert all(set(trial["settings"]) == set(trials[0]["settings"]) for trial in trials)
    assert set(trials[0]["settings"]) == {"dense_optimizer.learning_rate", "table_optimizer.learning_rate"}

    result = json.loads(ended.stdout)
    finals = [trials[0], trials[-1]]
    best = min(finals, key=lambda trial: trial["validation_log_loss"])
    assert (result["best"], result["untuned"]) == (best, trials[0])
    kept = {"untuned", Path(result["run_directory"]).name}
    assert {path.name for path in runs.iterdir()} == kept
    document, spec = read_job(output / "best.toml")
    settings = best["settings"] if best["trial"] else {}
    assert spec == parse_job(document)
    for field, value in settings.items():
        section, name = field.split(".")
        assert document[section].pop(name) == value
    assert {name: part for name, part in document.items() if part} == read_job(job)[0]
    assert 'name = "small"  # a name' in (output / "best.toml").read_text()
    trained = run("train", output / "best.toml", "--set", "run.epochs=0.5", "--run-directory", tmp_path / "trained")
    assert trained.returncode == 0, trained.stderr

    again = run(*arguments, "--json")
    assert json.loads(again.stdout) == result
    assert read_trials(output) == trials


@pytest.mark.slow
def test_without_time_for_a_trial_the_document_stays_and_the_needed_time_is_said(job: Path) -> None:
    ended = run("tune", job, "--minutes", 0.01, "--set", "run.epochs=0.2")
    assert ended.returncode == 0, ended.stderr
    assert "no trial fits the time" in ended.stdout
    assert f"to train the job as it is: dlrm train {job} --set run.epochs=0.2" in ended.stdout
    output = Path("runs", "small-tune")
    assert [trial["trial"] for trial in read_trials(output)] == [0]
    document, _ = read_job(output / "best.toml")
    assert document == read_job(job, ["run.epochs=0.2"])[0]
    other = run("tune", job, "--minutes", 0.01)
    assert (other.returncode, "trials of another job document" in other.stderr) == (2, True)


def test_a_document_that_states_everything_says_what_would_tune_it(job: Path, dlrm: Callable[..., Any]) -> None:
    rates = ["--set", "dense_optimizer.learning_rate=0.1", "--set", "table_optimizer.learning_rate=0.1"]
    ended = dlrm("tune", str(job), *rates)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--all" in ended.err
    assert not Path("runs").exists()


def test_a_document_without_its_data_fails_before_anything_is_trained(job: Path, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("tune", str(job), "--set", "data={train = ['missing.tsv']}")
    assert (ended.code, "missing.tsv" in ended.err) == (2, True)
    assert not Path("runs").exists()


def test_the_data_are_checked_as_the_settings_change_them(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    (tmp_path / "rows.csv").write_text("click,age\n" + "1,30\n0,40\n" * 100)
    document = tmp_path / "csv.toml"
    schema = '{ label = "click", dense = [{ name = "age" }] }'
    document.write_text(f'[data]\ntrain = ["rows.csv"]\nformat = "csv"\nschema = {schema}\n')
    output = tmp_path / "tuned"
    ended = dlrm("tune", str(document), "--set", "data.schema.label='bought'", "-o", str(output))
    assert (ended.code, "there is no such column" in ended.err, "bought" in ended.err) == (2, True, True)
    assert not output.exists()
