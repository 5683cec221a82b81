"""`dlrm sweep` with the real trainer."""

import json
import math
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.experiments.trials.results import TrialResult, append_result, read_results
from dlrm.record import EXIT_STOPPED
from tests.cli.conftest import command, run
from tests.cli.experiments.sweep.sweeps import make_end, make_plan, run_all
from tests.patience import wait_until

JOB = """
name = "small"

[data]
format = "synthetic"
synthetic = { num_rows = 20_000, num_ids = 50 }

[model]
architecture = "dlrm"
bottom_mlp = [8, 4]
top_mlp = [8, 1]

[batch]
global_size = 1024

[moments]
every = 1

[run]
epochs = 1

[resources]
workers_per_node = 1
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "sweeps" / "batches.toml"
SGD = """
job = "small.toml"
[set]
dense_optimizer.name = "sgd"
[grid]
"dense_optimizer.learning_rate" = [0.3, 1e6]
"""
CONFIRMED = """
job = "small.toml"
confirm_seeds = [5]
[grid]
"dense_optimizer.learning_rate" = [0.003, 0.01]
"""
SIZES = """
job = "small.toml"
compare = ["run.epochs"]
[set]
model.embedding_dim = 4
[grid]
run.epochs = [0.5, 1, 2, 4]
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present directory, with the job document."""
    monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(JOB)
    return tmp_path


def compute_auc(labels: np.ndarray, logits: np.ndarray) -> float:
    """Compute the share of pairs of a click and another row that are in order; a tie is half a pair."""
    clicks, others = logits[labels == 1].astype(np.float64), logits[labels == 0].astype(np.float64)
    return float(np.mean(np.sign(clicks[:, None] - others[None, :]) / 2 + 0.5))


def check_scores(output: Path, result: TrialResult) -> None:
    assert result.scores is not None
    logits, labels = np.load(output / result.scores.logits), np.load(output / result.scores.labels)
    assert (logits.dtype, logits.shape, labels.shape) == (np.float32, *2 * [(result.scores.num_rows,)])
    assert compute_auc(labels, logits) == pytest.approx(result.metrics["auc"], abs=1e-9)
    logits = logits.astype(np.float64)
    losses = np.logaddexp(0.0, logits) - labels * logits
    assert losses.mean() == pytest.approx(result.metrics["log_loss"], abs=1e-9)


@pytest.mark.slow
def test_every_trial_is_a_line_with_figures_and_scores_and_trained_once(directory: Path) -> None:
    sweep, output = directory / "sgd.toml", directory / "runs" / "sgd-sweep"
    sweep.write_text(SGD)
    ended = run("sweep", sweep, "--json")
    assert ended.returncode == 0, ended.stderr
    done, diverged = read_results(output / "results.jsonl")
    assert (done.outcome, diverged.outcome, diverged.reason) == ("done", "diverged", "diverged")
    assert str(directory) not in (output / "results.jsonl").read_text()

    # 20,000 rows, a tenth of them for the evaluation, and of the others a tenth for the validation.
    assert done.num_samples == pytest.approx(16_200, rel=0.02)
    assert done.num_steps == math.ceil((done.num_samples or 0) / 1024)
    assert [point.num_samples for point in done.curve] == [
        min(1024 * point.step, done.num_samples or 0) for point in done.curve
    ]
    last = done.curve[-1]
    metrics = done.metrics
    assert (last.auc, last.log_loss) == (metrics["auc"], metrics["log_loss"])
    assert last.validation_log_loss == metrics["validation_log_loss"]
    assert {"calibration", "validation_auc", "validation_calibration", "auc_standard_error"} <= metrics.keys()
    assert done.decided["model.embedding_dim"] == 4
    assert done.environment is not None
    assert {"python", "dlrm", "torch", "numpy"} <= done.environment.versions.keys()
    assert 0.0 < (done.training_seconds or 0.0) < done.seconds
    assert (done.cpu_seconds or 0.0) > 0.0
    check_scores(output, done)
    assert diverged.scores is None
    assert [*(output / "runs").iterdir()] == []

    rows: list[dict[str, Any]] = json.loads(ended.stdout)["rows"]
    assert [row["settings"] for row in rows] == [{"dense_optimizer.learning_rate": 0.3}]
    assert (rows[0]["num_diverged"], rows[0]["auc"]) == (1, metrics["auc"])
    before = (output / "results.jsonl").read_bytes()
    again = run("sweep", sweep)
    assert (again.returncode, "1 trial diverged" in again.stdout) == (0, True)
    assert max(map(len, again.stdout.split("results: ")[0].splitlines()[1:3])) <= 80
    assert (output / "results.jsonl").read_bytes() == before


@pytest.mark.slow
@pytest.mark.timeout(900)  # three runs, one after another
def test_a_killed_and_then_interrupted_sweep_goes_on_where_it_was(directory: Path) -> None:
    sweep, output = directory / "adam.toml", directory / "results"
    sweep.write_text(CONFIRMED)
    (directory / "small.toml").write_text(JOB.replace("epochs = 1", "epochs = 12"))
    # A kill, after which the launch process of the first trial trains on: the same command waits for it.
    sweeping = subprocess.Popen(
        command("sweep", sweep, "-o", output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: any(output.glob("runs/*/attempt-1/spool/rank-0.metrics.jsonl")))
    sweeping.kill()
    sweeping.wait()
    (killed,) = (path.name for path in (output / "runs").iterdir() if path.is_dir())
    assert not (output / "results.jsonl").exists()
    # An interrupt, which stops the second trial after a checkpoint.
    sweeping = subprocess.Popen(
        command("sweep", sweep, "-o", output), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: bool(read_results(output / "results.jsonl")))
    wait_until(lambda: any(path.name != killed for path in output.glob("runs/*") if path.is_dir()))
    (second,) = (path for path in output.glob("runs/*") if path.is_dir() and path.name != killed)
    wait_until((second / "attempt-1" / "spool" / "rank-0.metrics.jsonl").exists)
    os.kill(sweeping.pid, signal.SIGINT)
    _, said = sweeping.communicate()
    assert (sweeping.returncode, "repeat the same command" in said) == (EXIT_STOPPED, True), said
    ended = run("sweep", sweep, "-o", output, "--json")
    assert ended.returncode == 0, ended.stderr

    results = read_results(output / "results.jsonl")
    assert [(result.stage, result.seed, result.outcome) for result in results] == [
        ("grid", 0, "done"),
        ("grid", 0, "done"),
        ("confirm", 5, "done"),
    ]
    assert (results[0].key, results[1].num_attempts, results[1].cpu_seconds) == (killed, 2, None)
    best = min(results[:2], key=lambda result: result.metrics["validation_log_loss"] or math.inf)
    assert results[2].settings == best.settings
    for result in results:
        check_scores(output, result)
        steps = [point.step for point in result.curve]
        assert steps == sorted({*steps})
        assert steps[-1] == result.num_steps
    assert len({result.scores.checksum for result in results if result.scores}) == 1
    assert not (output / "runs" / killed).exists()


@pytest.mark.slow
def test_a_trial_that_failed_is_tried_again_with_the_memory_that_the_document_has_now(directory: Path) -> None:
    sweep, output = directory / "one.toml", directory / "results"
    sweep.write_text('job = "small.toml"\n')
    job = directory / "small.toml"
    job.write_text(JOB + 'memory = "300MiB"\n')
    assert run("sweep", sweep, "-o", output).returncode == 0
    job.write_text(JOB + 'memory = "8GiB"\n')
    assert run("sweep", sweep, "-o", output).returncode == 0
    failed, done = read_results(output / "results.jsonl")
    assert (failed.outcome, failed.reason, done.outcome) == ("failed", "bad_input", "done")
    assert "do not fit" in failed.message
    assert (done.key, done.num_attempts, done.cpu_seconds) == (failed.key, 2, None)


@pytest.mark.slow
def test_an_interrupt_at_the_end_of_a_trial_keeps_its_result_and_starts_no_other(directory: Path) -> None:
    sweep, output = directory / "adam.toml", directory / "results"
    sweep.write_text(CONFIRMED)
    sweeping = subprocess.Popen(
        command("sweep", sweep, "-o", output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: any(output.glob("runs/*/attempt-1/outcome.json")))
    os.kill(sweeping.pid, signal.SIGINT)
    assert sweeping.wait() == EXIT_STOPPED
    assert [result.outcome for result in read_results(output / "results.jsonl")] == ["done"]


@pytest.mark.slow
def test_the_trial_that_has_prepared_the_rows_for_all_tells_no_cpu_seconds(directory: Path) -> None:
    rows = "".join(f"{row % 3 == 0:d},{row % 7},{row % 11}\n" for row in range(3000))
    (directory / "rows.csv").write_text("label,one,two\n" + rows)
    schema = '{ dense = [{ name = "one" }], categorical = [{ name = "two" }] }'
    data = f'format = "csv"\ntrain = ["rows.csv"]\nschema = {schema}'
    synthetic = 'format = "synthetic"\nsynthetic = { num_rows = 20_000, num_ids = 50 }'
    (directory / "small.toml").write_text(JOB.replace(synthetic, data))
    (directory / "adam.toml").write_text('job = "small.toml"\nseeds = [0, 1]\n')
    ended = run("sweep", directory / "adam.toml", "-o", directory / "results")
    assert ended.returncode == 0, ended.stderr
    first, second = read_results(directory / "results" / "results.jsonl")
    assert (first.cpu_seconds, (second.cpu_seconds or 0.0) > 0.0) == (None, True)


def test_the_trials_are_listed_without_training_any(directory: Path) -> None:
    (directory / "adam.toml").write_text(CONFIRMED)
    listed = run("sweep", directory / "adam.toml", "--dry-run")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout.splitlines()[-1] == "3 trials, 3 left, 48,600 samples in all"
    assert "learning_rate 0.003, seed 0" in listed.stdout
    assert "seed 5, with chosen settings" in listed.stdout
    assert not (directory / "runs").exists()
    entries = json.loads(run("sweep", directory / "adam.toml", "--dry-run", "--json").stdout)
    assert [entry["num_samples"] for entry in entries] == [16_200] * 3


def test_the_example_is_valid_and_has_the_same_effort_for_every_method(directory: Path) -> None:
    entries = json.loads(run("sweep", EXAMPLE, "--dry-run", "--json").stdout)
    counts = Counter((entry["method"], entry["compared"]["batch.global_size"]) for entry in entries)
    assert {*counts.values()} == {3 + 4}
    assert len(counts) == 2 * 2


def test_the_data_are_checked_before_a_run_is_made(directory: Path) -> None:
    document = directory / "missing.toml"
    document.write_text('job = { data = { train = ["missing.tsv"] } }\n')
    ended = run("sweep", document)
    assert (ended.returncode, "missing.tsv" in ended.stderr) == (2, True)
    assert not list(directory.glob("runs/*/runs/*/attempt-1"))


@pytest.mark.parametrize(("rates", "is_chosen"), [("[0.01]", False), ("[0.01, 0.03]", True)])
def test_only_of_several_settings_the_summary_says_that_seeds_chose(
    tmp_path: Path, dlrm: Callable[..., Any], rates: str, is_chosen: bool
) -> None:
    plan = make_plan(tmp_path, f"seeds = [0, 1]\n[grid]\ndense_optimizer.learning_rate = {rates}\n")
    for result in run_all(plan, make_end):
        append_result(tmp_path / "results.jsonl", result)
    ended = dlrm("sweep", str(plan.sweep.path), "--output", str(tmp_path))
    assert ended.code == 0, ended.err
    text = " ".join(ended.out.split())
    assert ("the seeds that chose are the result too" in text) is is_chosen
    assert ("of the settings best on validation rows" in text) is is_chosen
    assert ("best settings" in text) is is_chosen


@pytest.mark.slow
@pytest.mark.timeout(900)  # four runs, one after another
def test_a_sweep_over_lengths_counts_parameters_and_operations_and_reports_its_law(directory: Path) -> None:
    (directory / "sizes.toml").write_text(SIZES)
    ended = run("sweep", directory / "sizes.toml", "-o", directory / "results")
    assert ended.returncode == 0, ended.stderr
    metrics = read_results(directory / "results" / "results.jsonl")[0].metrics
    # 26 tables of D = 4 with at most 50 rows each; MLPs 13-8-4 and (4 + 27 * 26 / 2)-8-1, and the dot products.
    dense, products = 13 * 8 + 8 * 4 + (4 + 351) * 8 + 8, 351 * 4
    assert metrics["flops_per_sample"] == 2 * 3 * (dense + products)
    num_parameters = (metrics["num_parameters"] or 0.0) - dense - (8 + 4 + 8 + 1)
    assert 0 < num_parameters <= 26 * 50 * 4
    assert num_parameters % 4 == 0
    report = run("report", directory / "results")
    assert report.returncode == 0, report.stderr
    assert "## Power laws" in report.stdout
    laws = json.loads(run("report", directory / "results", "--json").stdout)["power_laws"]
    assert {(law["size"], len(law["points"])) for law in laws} == {("samples", 4)}
    assert all(law["exponent"] < 0.0 for law in laws)
