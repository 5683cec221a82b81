"""Reports on the results that the present document of a sweep asks for, by the names that it gives them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.experiments.trials.results import ASKED_FILE_NAME, TrialNames, TrialResult, write_asked
from tests.cli.experiments.report.recorded import SEEDS, make_trial, write_results
from tests.cli.experiments.report.reports import Command, read_json, refuse

RATE = "dense_optimizer.learning_rate"


def name(trial: TrialResult, **names: object) -> TrialNames:
    """Name a trial as its line does, except for `names`."""
    return TrialNames.model_validate(trial.model_copy(update=names), from_attributes=True)


def make_grid(directory: Path, seeds: Sequence[int] = (0,), rates: Sequence[float] = (0.005, 0.01, 0.02)):
    """Make trials that choose, of which those with a rate of 0.01 are the best; seeds are the outer loop."""
    return [make_trial(directory, "adam", 1024, seed, "grid", rate=rate) for seed in seeds for rate in rates]


def read_row(dlrm: Command, directory: Path) -> dict[str, Any]:
    (row,) = read_json(dlrm, directory)["rows"]
    return row


@pytest.mark.slow
def test_lines_that_the_document_does_not_ask_for_count_for_nothing(tmp_path: Path, dlrm: Command) -> None:
    grid = make_grid(tmp_path)
    other = make_trial(tmp_path, "lamb", 1024, 0).model_copy(update={"compared": {}})
    write_results(tmp_path, [other, *grid])
    assert "another document" in refuse(dlrm, tmp_path)
    write_asked(tmp_path, [name(grid[0]), name(grid[2])])
    report = read_json(dlrm, tmp_path)
    (row,) = report["rows"]
    # The best of all three has a rate of 0.01.
    assert (row["method"], row["settings"]) == ("adam", {RATE: 0.005})
    assert (row["num_settings"], report["num_unasked"]) == (2, 2)
    text = dlrm("report", str(tmp_path)).out
    assert "2 trials of a sweep" in text
    assert "the document of the sweep does not ask for their trials, or not yet: 2." in text
    write_asked(tmp_path, [name(grid[0], key="one that has not run")])
    assert "no results that the document of the sweep asks for" in refuse(dlrm, tmp_path)
    (tmp_path / ASKED_FILE_NAME).write_text('{"keys": []}')
    assert "asked.json: has no list of trials (valid: as `dlrm sweep` writes it" in refuse(dlrm, tmp_path)


def test_seeds_that_have_confirmed_choose_where_the_document_says_so_now(tmp_path: Path, dlrm: Command) -> None:
    # With seed 0 the first document chose 0.01, which seed 1 confirmed; seed 1 chooses now, and seed 2 confirms.
    old = make_grid(tmp_path)
    confirmed = make_trial(tmp_path, "adam", 1024, 1, "confirm")
    grid = make_grid(tmp_path, seeds=(1,), rates=(0.005, 0.02))
    result = make_trial(tmp_path, "adam", 1024, 2, "confirm")
    write_results(tmp_path, [*old, confirmed, *grid, result])
    write_asked(tmp_path, [name(confirmed, stage="grid"), *map(name, grid), name(result)])
    row = read_row(dlrm, tmp_path)
    assert (row["settings"], row["is_confirmed"], row["num_settings"]) == ({RATE: 0.01}, True, 3)
    assert row["auc"]["value"] == result.metrics["auc"]


def test_results_have_the_method_and_the_compared_values_of_the_present_document(tmp_path: Path, dlrm: Command) -> None:
    trials = [make_trial(tmp_path, "adam", 1024, seed) for seed in SEEDS]
    lamb = [make_trial(tmp_path, "lamb", 1024, seed).model_copy(update={"compared": {}}) for seed in SEEDS]
    write_results(tmp_path, [*trials, *lamb])
    asked = [name(trial, compared={}, method="base") for trial in trials]
    write_asked(tmp_path, [*asked, *map(name, lamb)])
    report = read_json(dlrm, tmp_path, "--base", "base")
    assert [row["method"] for row in report["rows"]] == ["base", "lamb"]
    assert [difference["cell"] for difference in report["differences"]] == ["lamb"]


@pytest.mark.parametrize("is_failed", [False, True], ids=["cut short", "failed"])
def test_an_open_choice_is_the_best_so_far_over_common_seeds(tmp_path: Path, dlrm: Command, is_failed: bool) -> None:
    grid = make_grid(tmp_path, seeds=(0, 1))
    # The best rate has no second seed yet.
    done = [trial for trial in grid if (trial.seed, trial.settings[RATE]) != (1, 0.01)]
    failed = make_trial(tmp_path, "adam", 1024, 1, "grid", outcome="failed")
    write_results(tmp_path, [*done, failed] if is_failed else done)
    write_asked(tmp_path, map(name, grid))
    row = read_row(dlrm, tmp_path)
    assert (row["settings"], row["is_open"], row["num_missing"]) == ({RATE: 0.01}, True, 0 if is_failed else 1)
    text = dlrm("report", str(tmp_path)).out
    assert "Best setting so far of each method" in text
    assert "0.01 so far" in text
    missing = "adam, 1024: trials left: at least 1; another setting may come out as the best."
    assert ("adam, 1024: 1 failed" if is_failed else missing) in text
    write_results(tmp_path, [grid[4]])
    whole = dlrm("report", str(tmp_path)).out
    assert "so far" not in whole
    assert "trials left" not in whole


def test_seeds_that_have_not_confirmed_yet_are_counted(tmp_path: Path, dlrm: Command) -> None:
    trials = [make_trial(tmp_path, "adam", 1024, seed) for seed in SEEDS]
    write_results(tmp_path, trials[:2])
    write_asked(tmp_path, map(name, trials))
    text = dlrm("report", str(tmp_path)).out
    assert "2/3" in text
    assert "adam, 1024: trials left: 1." in text


def test_cells_without_a_result_are_named_with_the_trials_that_are_left(tmp_path: Path, dlrm: Command) -> None:
    trials = [make_trial(tmp_path, "adam", batch, seed, "grid") for batch in (1024, 4096) for seed in (0, 1)]
    write_results(tmp_path, trials[:2])
    write_asked(tmp_path, map(name, trials))
    assert "with the number that is left at least, of adam, 4096 (2)." in dlrm("report", str(tmp_path)).out


def test_nothing_is_called_diverged_or_at_an_edge_before_all_of_it_has_run(tmp_path: Path, dlrm: Command) -> None:
    rates = (0.005, 0.01, 0.1)
    grid = {rate: make_trial(tmp_path, "adam", 1024, 0, "grid", rate=rate) for rate in rates}
    lamb = [make_trial(tmp_path, "lamb", 1024, 0, "grid", rate=rate, outcome="diverged") for rate in rates]
    write_results(tmp_path, [grid[0.005], grid[0.01], lamb[0]])
    write_asked(tmp_path, map(name, [*grid.values(), *lamb]))
    adam, other = read_json(dlrm, tmp_path)["rows"]
    assert (adam["settings"], adam["edges"]) == ({RATE: 0.01}, [])
    assert (other["settings"], other["num_diverged"]) == (None, 1)
    assert "all diverged" not in dlrm("report", str(tmp_path)).out
    write_results(tmp_path, lamb[1:])
    assert "all diverged" in dlrm("report", str(tmp_path)).out


def test_a_confirmed_choice_stays_where_settings_have_no_seed_in_common(tmp_path: Path, dlrm: Command) -> None:
    earlier = make_grid(tmp_path, seeds=(7,), rates=(0.1,))
    confirmed = [make_trial(tmp_path, "adam", 1024, seed) for seed in SEEDS]
    write_results(tmp_path, [*earlier, *make_grid(tmp_path, seeds=(1, 2), rates=(0.005, 0.01)), *confirmed])
    row = read_row(dlrm, tmp_path)
    assert (row["settings"], row["is_confirmed"]) == ({RATE: 0.01}, True)


def test_trials_on_different_training_rows_are_said_to_be(tmp_path: Path, dlrm: Command) -> None:
    trials = [
        make_trial(tmp_path, method, 1024, seed).model_copy(update={"data_checksum": "a"})
        for method in ("adam", "lamb")
        for seed in SEEDS
    ]
    write_results(tmp_path / "same", trials)
    write_results(tmp_path / "other", [*trials[:-1], trials[-1].model_copy(update={"data_checksum": "b"})])
    said = "The trials were trained on different rows"
    assert [said in dlrm("report", str(tmp_path / name)).out for name in ("same", "other")] == [False, True]


def test_numbers_of_evaluation_rows_that_differ_are_not_compared(tmp_path: Path, dlrm: Command) -> None:
    trials = [
        trial.model_copy(update={"metrics": trial.metrics | {"num_rows": num_rows}})
        for method, num_rows in (("adam", 10_000.0), ("lamb", 50_000.0))
        for trial in [make_trial(tmp_path, method, 1024, seed, keeps_scores=False) for seed in SEEDS]
    ]
    write_results(tmp_path, trials)
    (one,) = read_json(dlrm, tmp_path, "--base", "adam")["differences"]
    assert one["refusal"] == "not paired: other evaluation rows (50,000 and 10,000)"
    assert "evaluated on different rows" in dlrm("report", str(tmp_path)).out
