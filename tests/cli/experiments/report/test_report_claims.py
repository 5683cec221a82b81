"""Claims of `dlrm report`: none that its results do not bear."""

from pathlib import Path

import pytest

from cli.experiments.trials.results import CurvePoint, TrialNames, TrialResult, write_asked
from tests.cli.experiments.report.recorded import (
    BATCHES,
    CRITICAL_BATCH,
    SEEDS,
    make_curve,
    make_trial,
    write_results,
)
from tests.cli.experiments.report.reports import Command, find, read_json


def test_of_a_method_with_one_setting_no_words_say_that_it_was_chosen(tmp_path: Path, dlrm: Command) -> None:
    lone, several = tmp_path / "lone", tmp_path / "several"
    trials = [make_trial(lone, method, 1024, seed, "grid") for method in ("adam", "lamb") for seed in (0, 1)]
    write_results(lone, trials)
    text = dlrm("report", str(lone)).out
    assert "The only setting of each method, at each value of batch.global\\_size among these results" in text
    assert "so that it is not known whether trials are left" in text
    write_asked(lone, [TrialNames.model_validate(trial, from_attributes=True) for trial in trials])
    text = dlrm("report", str(lone)).out
    assert "is not beside them" not in text
    assert "Each method has one setting, at each value of batch.global\\_size, so that nothing is chosen" in text
    assert "best setting" not in text.lower()
    assert "chose" not in text.replace("nothing is chosen", "").replace("No base is chosen", "")
    assert "confirmed" not in text
    write_results(several, [make_trial(several, "adam", 1024, 0, "grid", rate=rate) for rate in (0.01, 0.02)])
    text = dlrm("report", str(several)).out
    assert "Best setting of each method" in text
    assert "No result is confirmed: the seeds that chose the best setting are the result too" in text


def test_seeds_that_differ_alike_to_the_last_bit_have_no_verdict(tmp_path: Path, dlrm: Command) -> None:
    trials = [
        make_trial(tmp_path, name, 1024, seed, keeps_scores=False) for name in ("adam", "lamb") for seed in (1, 2)
    ]
    aucs = {"adam": 0.75, "lamb": 0.76}
    metrics = ("auc", "log_loss")
    trials = [
        trial.model_copy(update={"metrics": {**trial.metrics, **dict.fromkeys(metrics, aucs[trial.method])}})
        for trial in trials
    ]
    write_results(tmp_path, trials)
    (one,) = read_json(dlrm, tmp_path, "--base", "adam")["differences"]
    assert one["auc"]["value"] == pytest.approx(0.01)
    assert (one["auc"]["source"], one["verdict"]) == ("seeds", "not told apart")


def test_one_training_of_each_method_has_no_verdict_however_sure_its_rows_are(tmp_path: Path, dlrm: Command) -> None:
    trials = [make_trial(tmp_path, method, 1024, 10) for method in ("adam", "lamb")]
    write_results(tmp_path, trials)
    (one,) = read_json(dlrm, tmp_path, "--base", "adam")["differences"]
    assert one["auc"]["low"] > 0.0
    assert (one["auc"]["source"], one["verdict"]) == ("rows", "no verdict: one training each")
    write_results(
        tmp_path, [make_trial(tmp_path, method, 1024, seed) for method in ("adam", "lamb") for seed in (11, 12)]
    )
    (one,) = read_json(dlrm, tmp_path, "--base", "adam")["differences"]
    assert one["verdict"] == "higher AUC, lower log-loss"


def test_a_critical_batch_of_one_seed_has_no_verdict_beside_the_noise_scale(tmp_path: Path, dlrm: Command) -> None:
    write_results(tmp_path, [make_trial(tmp_path, "adam", batch, 10) for batch in BATCHES])
    text = dlrm("report", str(tmp_path), "--target-auc", "0.56").out
    assert "the critical batch is about 6,000. Whether it and the noise scale of the runs, 7,000" in text
    assert "cannot be told: they are a factor of 1.17 apart. A batch has one seed, so that there is no interval" in text


def test_a_critical_batch_is_told_without_its_largest_batch_too(tmp_path: Path, dlrm: Command) -> None:
    batches = (4096, 16_384, 32_768, 65_536)
    trials = {batch: [make_trial(tmp_path, "adam", batch, seed) for seed in SEEDS] for batch in batches}
    # The largest needs a third more samples than the curve of the others says.
    curve = [point.model_copy(update={"step": -(-point.num_samples // 65_536)}) for point in make_curve(90_000)]
    trials[65_536] = [trial.model_copy(update={"curve": curve}) for trial in trials[65_536]]
    write_results(tmp_path, [trial for of_batch in trials.values() for trial in of_batch])
    (scaling,) = read_json(dlrm, tmp_path, "--target-auc", "0.5185")["scalings"]
    assert scaling["critical_batch"] < 0.9 * CRITICAL_BATCH
    assert scaling["critical_batch_without_largest"] == pytest.approx(CRITICAL_BATCH, rel=1e-3)
    text = dlrm("report", str(tmp_path), "--target-auc", "0.5185").out
    assert "; without the largest batch of the fit it would be 6,000 (6,000 to 6,000)." in text


def test_noise_scales_without_an_upper_bound_are_told_as_a_lower_bound_of_their_median(
    tmp_path: Path, dlrm: Command
) -> None:
    trials = [make_trial(tmp_path, "adam", batch, seed) for batch in BATCHES for seed in SEEDS]
    # Five of nine runs have a lower bound alone.
    for number in range(5):
        metrics = trials[number].metrics | {"noise_scale": None, "noise_scale_low": 20_000.0 + number}
        trials[number] = trials[number].model_copy(update={"metrics": metrics})
    write_results(tmp_path, trials)
    (scaling,) = read_json(dlrm, tmp_path, "--target-auc", "0.56")["scalings"]
    bounds = scaling["noise_scale"], scaling["noise_scale_low"], scaling["noise_scale_high"]
    assert bounds == (None, 20_000.0, None)
    text = dlrm("report", str(tmp_path), "--target-auc", "0.56").out
    assert "It and the noise scale of the runs, above 20,000 (median" in text
    assert "do not agree within a factor of 2." in text


def test_a_result_whose_batch_grows_is_no_point_of_the_batches(tmp_path: Path, dlrm: Command) -> None:
    trials = [make_trial(tmp_path, "adam", batch, seed) for batch in BATCHES for seed in SEEDS]
    for batch in BATCHES:
        for seed in SEEDS:
            trial = make_trial(tmp_path, "lamb", batch, seed)
            # A quarter of the samples with a batch of 512.
            steps = 250_000 // 512 + 750_000 // batch + 2
            trials.append(trial.model_copy(update={"num_steps": steps}))
    write_results(tmp_path, trials)
    report = read_json(dlrm, tmp_path, "--target-auc", "0.56")
    row = find(report["rows"], "lamb", 4096)
    assert (row["batch"], row["has_growing_batch"]) == (None, True)
    assert [scaling["series"] for scaling in report["scalings"]] == ["adam"]
    text = dlrm("report", str(tmp_path), "--plots", str(tmp_path / "plots")).out
    assert "grows to at most 4,096" in text
    grown = "since their batch grows: lamb, 1024; lamb, 4096; lamb, 16384."
    assert text.count(f"Left out of the plots, {grown}") == text.count(f"Left out of plots and fits, {grown}") == 1
    for name in ("auc", "log-loss", "steps-to-target", "train-auc-gap"):
        drawn = (tmp_path / "plots" / f"{name}.svg").read_text()
        assert ">adam" in drawn
        assert "lamb" not in drawn


def make_grown_trial(directory: Path, seed: int, factor: int, auc: float = 0.7) -> TrialResult:
    """Make a trial of a batch that grows, with the curve (10, 1,000, 0.5), (50, 9,000, `auc`), counts by `factor`."""
    curve = [
        CurvePoint(step=factor * step, num_samples=factor * samples, auc=value, log_loss=0.5)
        for step, samples, value in ((10, 1_000, 0.5), (50, 9_000, auc))
    ]
    counts = {"num_steps": factor * 50, "num_samples": factor * 9_000}
    return make_trial(directory, "lamb", 4096, seed).model_copy(update={"curve": curve, **counts})


def test_a_growing_batch_has_steps_to_the_target_and_no_fit(tmp_path: Path, dlrm: Command) -> None:
    """0.65 is three quarters of the way from 0.5 to 0.7: 40 steps and 7,000 samples, twice and four times as many."""
    constant = [make_trial(tmp_path, "adam", batch, seed) for batch in BATCHES for seed in SEEDS]
    write_results(tmp_path, constant)
    alone = read_json(dlrm, tmp_path, "--target-auc", "0.65")
    assert alone["growing"] == []
    grown = [make_grown_trial(tmp_path, seed, factor) for seed, factor in zip(SEEDS, (1, 2, 4), strict=True)]
    write_results(tmp_path, grown)
    report = read_json(dlrm, tmp_path, "--target-auc", "0.65")
    assert report["scalings"] == alone["scalings"]
    (way,) = report["growing"]
    assert (way["series"], way["compared"], way["misses"]) == ("lamb", {"batch.global_size": 4096}, {})
    assert (way["steps"], way["samples"]) == (pytest.approx(80), pytest.approx(14_000))
    assert (
        "| lamb, 4096 | grows to at most 4,096 | 80 | 14,000 |"
        in dlrm("report", str(tmp_path), "--target-auc", "0.65").out
    )


def test_a_batch_that_grows_has_no_mean_of_the_seeds_that_reach_the_target_alone(tmp_path: Path, dlrm: Command) -> None:
    aucs = (0.7, 0.7, 0.6)
    write_results(tmp_path, [make_grown_trial(tmp_path, seed, 1, auc) for seed, auc in zip(SEEDS, aucs, strict=True)])
    (way,) = read_json(dlrm, tmp_path, "--target-auc", "0.65")["growing"]
    assert (way["steps"], way["samples"], way["misses"]) == (None, None, {"never": 1})
    assert "critical batch" not in dlrm("report", str(tmp_path), "--target-auc", "0.65").out


def test_seeds_that_diverge_are_told_beside_the_mean_of_the_others(tmp_path: Path, dlrm: Command) -> None:
    trials = [make_trial(tmp_path, "adam", 1024, seed) for seed in SEEDS[:2]]
    write_results(tmp_path, [*trials, make_trial(tmp_path, "adam", 1024, SEEDS[2], outcome="diverged")])
    assert "adam, 1024: only 2 of 3 seeds are done; their mean may favour it" in dlrm("report", str(tmp_path)).out


def test_a_verdict_by_seeds_alone_is_for_these_rows_only(tmp_path: Path, dlrm: Command) -> None:
    trials = [make_trial(tmp_path, method, 1024, seed) for method in ("adam", "lamb") for seed in SEEDS]
    write_results(tmp_path / "paired", trials)
    write_results(tmp_path / "unpaired", [trial.model_copy(update={"scores": None}) for trial in trials])
    (tmp_path / "scores").rename(tmp_path / "paired" / "scores")
    verdicts: list[str] = []
    for name, is_paired in (("paired", True), ("unpaired", False)):
        (one,) = read_json(dlrm, tmp_path / name, "--base", "adam")["differences"]
        verdicts.append(one["verdict"])
        text = dlrm("report", str(tmp_path / name), "--base", "adam").out
        assert ("each evaluation row with itself" in text, "Banerjee" in text) == (is_paired, is_paired)
        assert ("Student's over seeds alone" in text) is not is_paired
    assert verdicts == ["higher AUC, lower log-loss", "higher AUC, lower log-loss on these rows"]
    lone = tmp_path / "lone"
    write_results(lone, trials[:1])
    assert "of the mean over seeds by Student" not in dlrm("report", str(lone)).out


def test_columns_without_any_number_are_left_out_and_results_of_one_batch_have_no_fit(
    tmp_path: Path, dlrm: Command
) -> None:
    directory = write_results(tmp_path, [make_trial(tmp_path, "adam", 1024, seed) for seed in SEEDS])
    text = dlrm("report", str(directory)).out
    assert "| method | batch | steps | samples | seeds | seeds without a figure |" in text
    assert "**Noise scale of the runs, in samples**" in text
    assert "| method | noise scale of the runs |" in text
    assert "Too few batches for a fit" in text
    assert "arXiv 1812.06162" not in text
