"""Power laws of a report, from results whose errors follow a known law of samples and parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.experiments.trials.results import TrialResult
from tests.cli.experiments.report.recorded import make_trial, write_results
from tests.cli.experiments.report.reports import Command, read_json

EPOCHS = (0.0625, 0.125, 0.25, 0.5, 1.0)
DIMS = (4, 8, 16, 32)


def compute_error(samples: float, parameters: float) -> float:
    return 0.15 + 0.05 * (samples / 1e6) ** -0.4 + 0.02 * (parameters / 1e6) ** -0.6


def make_sized_trial(directory: Path, epochs: float, dim: int, seed: int = 0, **fields: Any) -> TrialResult:
    """Make a trial that has so many epochs of a million samples, and a million parameters for each dimension."""
    noise = np.random.default_rng([round(epochs * 1e4), dim, seed]).normal(scale=2e-5)
    samples, parameters = round(epochs * 1e6), dim * 1e6
    error = compute_error(samples, parameters) + noise
    trial = make_trial(directory, "adam", 1024, seed, "grid", keeps_scores=False)
    sized = {"num_parameters": parameters, "flops_per_sample": dim * 100.0}
    return trial.model_copy(
        update={
            "key": f"{epochs}-{dim}-{seed}",
            "compared": {"run.epochs": epochs, "model.embedding_dim": dim},
            "num_samples": samples,
            "metrics": {**trial.metrics, "auc": 1.0 - error, "log_loss": error, **sized},
            **fields,
        }
    )


def report_laws(dlrm: Command, directory: Path, trials: Sequence[TrialResult]) -> dict[tuple[str, str, str], Any]:
    laws = read_json(dlrm, write_results(directory, trials))["power_laws"]
    return {(law["series"], law["size"], law["metric"]): law for law in laws}


def test_a_report_has_the_laws_of_samples_parameters_and_compute(dlrm: Command, tmp_path: Path) -> None:
    trials = [make_sized_trial(tmp_path, epochs, dim, seed) for epochs in EPOCHS for dim in DIMS for seed in (0, 1)]
    laws = report_laws(dlrm, tmp_path, trials)
    assert len(laws) == 2 * (len(DIMS) + len(EPOCHS) + 1)
    for metric in ("auc", "log_loss"):
        of_samples, of_parameters = laws["adam, 16", "samples", metric], laws["adam, 1", "parameters", metric]
        assert of_samples["exponent_low"] <= -0.4 <= of_samples["exponent_high"]
        assert of_samples["exponent"] == pytest.approx(-0.4, abs=0.05)
        assert of_parameters["exponent_low"] <= -0.6 <= of_parameters["exponent_high"]
        for prediction in of_samples["predictions"]:
            truth = compute_error(prediction["factor"] * 1e6, 16e6)
            expected = 1.0 - truth if metric == "auc" else truth
            assert prediction["low"] <= expected <= prediction["high"]
            assert prediction["value"] == pytest.approx(expected, abs=2e-3)
        errors = [error for _, error in laws["adam", "compute", metric]["points"]]
        assert errors == sorted(errors, reverse=True)


def test_each_size_and_metric_has_a_plot(dlrm: Command, tmp_path: Path) -> None:
    write_results(tmp_path, [make_sized_trial(tmp_path, *size) for size in ((0.5, 16), (1.0, 16), (1.0, 32))])
    ended = dlrm("report", str(tmp_path), "--markdown", str(tmp_path / "report.md"))
    assert ended.code == 0, ended.err
    assert "## Power laws" in (tmp_path / "report.md").read_text()
    plots = {path.stem for path in (tmp_path / "report-plots").glob("*-law-of-*.svg")}
    assert plots == {f"{m}-law-of-{s}" for m in ("auc", "log-loss") for s in ("samples", "parameters", "compute")}


def test_results_without_a_number_of_parameters_have_the_law_of_samples_alone(dlrm: Command, tmp_path: Path) -> None:
    trials = [make_sized_trial(tmp_path, epochs, 16) for epochs in EPOCHS]
    unknown = {"num_parameters", "flops_per_sample"}
    old = [
        trial.model_copy(update={"metrics": {k: v for k, v in trial.metrics.items() if k not in unknown}})
        for trial in trials
    ]
    assert {size for _, size, _ in report_laws(dlrm, tmp_path, old)} == {"samples"}


def test_three_sizes_runs_that_ended_early_and_errors_that_rise_are_told(dlrm: Command, tmp_path: Path) -> None:
    few = write_results(tmp_path / "few", [make_sized_trial(tmp_path, epochs, 16) for epochs in EPOCHS[:3]])
    assert "Too few sizes for a law, of at least 4, since it has three numbers: adam, 16 (samples: 3)." in " ".join(
        dlrm("report", str(few)).out.split()
    )
    trials = [make_sized_trial(tmp_path, epochs, 16) for epochs in EPOCHS]
    trials[1] = make_sized_trial(tmp_path, EPOCHS[1], 16, reason="no_improvement")
    early = dlrm("report", str(write_results(tmp_path / "early", trials))).out
    assert "Left out, since a run ended early: adam, 0.125, 16." in early
    risen = [make_sized_trial(tmp_path, epochs, 16, num_samples=round(1e5 / epochs)) for epochs in EPOCHS]
    told = dlrm("report", str(write_results(tmp_path / "risen", risen))).out
    assert "The law is poor, since the sizes leave a bound of its exponent open and a larger size has a larger" in told


def test_results_of_one_size_have_no_section(dlrm: Command, tmp_path: Path) -> None:
    trials = [make_trial(tmp_path, "adam", batch, 0, keeps_scores=False) for batch in (1024, 4096, 16_384, 65_536)]
    assert report_laws(dlrm, tmp_path, trials) == {}
    assert "Power laws" not in dlrm("report", str(tmp_path)).out
