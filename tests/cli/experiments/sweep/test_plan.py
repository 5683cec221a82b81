"""Which trials are due, and which settings they choose."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cli.experiments.sweep.summary import summarise
from cli.experiments.trials.results import TrialResult, index_results
from cli.experiments.trials.runner import Trial
from cli.local.errors import BadInputError
from cli.render.sweep import describe_rows, make_row_record, make_summary_table
from tests.cli.experiments.sweep.sweeps import EVERY_RATE, TWO_METHODS, list_rates, make_end, make_plan, run_all, select

BEST = {("adam", 256): 0.01, ("adam", 1024): 0.1, ("sgd", 256): 0.03, ("sgd", 1024): 0.03}


def end_with_best(trial: Trial) -> TrialResult:
    """End a trial so that the validation rows prefer BEST, and the evaluation rows prefer anything else."""
    rate = trial.settings["dense_optimizer.learning_rate"]
    is_best = rate == BEST[trial.method, trial.compared["batch.global_size"]]
    return make_end(trial, loss=0.4 if is_best else 0.5, auc=0.6 if is_best else 0.9)


def test_the_validation_rows_choose_and_the_choice_is_trained_again_with_other_seeds(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    results = run_all(plan, end_with_best)
    for (method, batch), best in BEST.items():
        grid = select(results, method, batch)
        assert sorted((result.seed, result.settings["dense_optimizer.learning_rate"]) for result in grid) == [
            (seed, rate) for seed in (0, 1) for rate in sorted(EVERY_RATE)
        ]
        confirmed = select(results, method, batch, "confirm")
        assert [(result.seed, rate) for result, rate in zip(confirmed, list_rates(confirmed), strict=True)] == [
            (10, best),
            (11, best),
        ]
    assert len(results) == len({result.key for result in results}) == 2 * 2 * (3 * 2 + 2)
    rows = {(row.method, row.compared["batch.global_size"]): row for row in summarise(plan, results)}
    for cell, row in rows.items():
        assert row.settings == {"dense_optimizer.learning_rate": BEST[cell]}
        assert row.is_confirmed
        assert {result.seed for result in row.results} == {10, 11}


def test_a_choice_without_validation_rows_ends_with_the_field_that_holds_them_out(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    with pytest.raises(BadInputError, match=r"batches.toml: run.validation_fraction: adam, .* had no validation rows"):
        run_all(plan, lambda trial: make_end(trial, loss=None))
    # Of one setting nothing is chosen.
    alone = make_plan(tmp_path, "seeds = [0, 1]\n")
    assert len(run_all(alone, lambda trial: make_end(trial, loss=None))) == 2


def test_the_mean_over_the_seeds_chooses(tmp_path: Path) -> None:
    losses = {(0.01, 0): 0.1, (0.01, 1): 0.9, (0.03, 0): 0.4, (0.03, 1): 0.4, (0.1, 0): 0.6, (0.1, 1): 0.3}
    plan = make_plan(tmp_path)
    results = run_all(
        plan,
        lambda trial: make_end(trial, losses.get((trial.settings["dense_optimizer.learning_rate"], trial.seed), 0.5)),
    )
    assert {rate for result in results if result.stage == "confirm" for rate in list_rates([result])} == {0.03}


def test_methods_and_values_advance_side_by_side_and_all_choose_before_any_is_confirmed(tmp_path: Path) -> None:
    results = run_all(make_plan(tmp_path), end_with_best)
    grid = [result for result in results if result.stage == "grid"]
    assert results[: len(grid)] == grid
    for start in range(0, len(grid), 4):
        assert {(result.method, result.compared["batch.global_size"]) for result in grid[start : start + 4]} == {*BEST}
        assert len({result.seed for result in grid[start : start + 4]}) == 1


def test_a_setting_that_diverges_with_one_seed_is_not_chosen(tmp_path: Path) -> None:
    def end(trial: Trial) -> TrialResult:
        if trial.settings["dense_optimizer.learning_rate"] == 0.1:
            return make_end(trial, 0.1, reason="diverged" if trial.seed == 1 else "completed")
        return make_end(trial, 0.5 + trial.settings["dense_optimizer.learning_rate"])

    plan = make_plan(tmp_path)
    results = run_all(plan, end)
    assert {*list_rates(result for result in results if result.stage == "confirm")} == {0.01}
    rows = summarise(plan, results)
    assert [row.num_diverged for row in rows] == [1] * 4
    assert {result.outcome for result in results if result.reason == "diverged"} == {"diverged"}


def test_where_every_setting_diverges_nothing_is_confirmed(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    results = run_all(plan, lambda trial: make_end(trial, reason="diverged"))
    assert {result.stage for result in results} == {"grid"}
    row = summarise(plan, results)[0]
    assert (row.is_chosen, row.settings, row.num_seeds, row.estimate("auc")) == (True, None, 0, None)


def test_a_trial_that_failed_is_due_again_and_nothing_is_chosen_before(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    first = plan.list_due({})[0]
    results = run_all(plan, end_with_best, most=24)
    failed = [make_end(first, reason="worker_crashed"), *results[1:]]
    due = plan.list_due(index_results(failed))
    assert due[0].key == first.key
    row = summarise(plan, failed)[0]
    assert (row.is_chosen, row.num_failed) == (False, 1)
    again = [*failed, make_end(first, 0.5)]
    assert summarise(plan, again)[0].num_failed == 0
    assert all(trial.stage == "confirm" for trial in plan.list_due(index_results(again)))


def test_halving_trains_all_settings_briefly_and_the_best_third_of_them_on(tmp_path: Path) -> None:
    text = TWO_METHODS.replace("[0.01, 0.03, 0.1]", "[0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09]")
    plan = make_plan(tmp_path, text.replace("[methods.adam]", "[halving]\n[methods.adam]"))

    def end(trial: Trial) -> TrialResult:
        rate = trial.settings["dense_optimizer.learning_rate"]
        # Best in short runs, and worst in long ones.
        return make_end(trial, abs(rate - 0.05) if trial.fraction < 1.0 else 1.0 - abs(rate - 0.05))

    expected = [len(plan.list_expected(cell, {})) for cell in plan.cells]
    results = run_all(plan, end)
    of_cell = [result for result in results if (result.method, result.compared["batch.global_size"]) == ("adam", 256)]
    counts = dict.fromkeys((1 / 9, 1 / 3, 1.0), 0)
    rates: dict[float, set[float]] = {fraction: set() for fraction in counts}
    for result in of_cell:
        if result.stage != "confirm":
            counts[result.fraction] += 1
            rates[result.fraction] |= {*list_rates([result])}
    assert list(counts.values()) == [18, 6, 2]
    assert rates[1 / 3] == {0.04, 0.05, 0.06}
    assert rates[1.0] == {0.05}
    assert {result.stage for result in of_cell if result.fraction < 1.0} == {"rung"}
    assert {*list_rates(result for result in of_cell if result.stage == "confirm")} == {0.05}
    assert expected == [18 + 6 + 2 + 2] * 4
    assert len(results) == sum(expected)


def test_a_summary_has_means_with_intervals_and_the_edges_of_the_grid(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)

    def end(trial: Trial) -> TrialResult:
        aucs = {10: 0.7, 11: 0.8}
        return end_with_best(trial).model_copy(
            update={"metrics": {**end_with_best(trial).metrics, "auc": aucs.get(trial.seed, 0.1)}}
        )

    rows = {(row.method, row.compared["batch.global_size"]): row for row in summarise(plan, run_all(plan, end))}
    row = rows["adam", 256]
    auc = row.estimate("auc")
    assert auc is not None
    # Student's 0.975 quantile for one degree of freedom is 12.7062; the standard error of 0.7 and 0.8 is 0.05.
    assert (auc.value, auc.half_width) == (pytest.approx(0.75), pytest.approx(12.7062 * 0.05, rel=1e-5))
    record = make_row_record(row)
    assert (record["auc"], record["auc_low"], record["auc_high"]) == pytest.approx(
        (0.75, 0.75 - 0.63531, 0.75 + 0.63531), rel=1e-5
    )
    console = Console(width=80, record=True, file=StringIO())
    console.print(make_summary_table([row], ["batch.global_size"]))
    assert "0.7500 ± 0.6353" in console.export_text()
    assert "±: 95 % interval of the mean over the seeds" in describe_rows([row], is_chosen_by_result=False)
    assert row.edges == ["lowest dense_optimizer.learning_rate"]
    assert rows["adam", 1024].edges == ["highest dense_optimizer.learning_rate"]
    assert rows["sgd", 256].edges == []


def test_without_seeds_that_confirm_the_trials_that_chose_are_the_result(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, TWO_METHODS.replace("confirm_seeds = [10, 11]\n", ""))
    row = summarise(plan, run_all(plan, end_with_best))[0]
    assert (row.is_confirmed, [result.seed for result in row.results]) == (False, [0, 1])
