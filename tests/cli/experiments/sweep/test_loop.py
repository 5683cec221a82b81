"""The loop of a sweep, with trials that end by a formula."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from cli.experiments.sweep.loop import Loop
from cli.experiments.trials.results import TrialResult, read_asked, read_results
from cli.experiments.trials.runner import ExperimentStopped, Trial
from tests.cli.experiments.sweep.sweeps import TWO_METHODS, make_end, make_plan

NUM_TRIALS = 2 * 2 * (3 * 2 + 2)


class FormulaRunner:
    """Runner whose trials end at once; it is stopped after so many."""

    def __init__(self, end: Callable[[Trial], TrialResult] = make_end, most: int = 1000, max_running: int = 1) -> None:
        self.max_running = max_running
        self.most_running = 0
        self.started: list[str] = []
        self.finished: set[str] = set()
        self._end = end
        self._most = most
        self._running: list[Trial] = []

    def start(self, trial: Trial, label: str) -> None:  # noqa: ARG002
        self._running.append(trial)
        self.started.append(trial.key)
        self.most_running = max(self.most_running, len(self._running))

    def wait(self) -> Sequence[tuple[Trial, TrialResult]]:
        if self._most <= 0:
            raise ExperimentStopped
        self._most -= 1
        trial = self._running.pop(0)
        return [(trial, self._end(trial))]

    def finish(self, keys: Iterable[str]) -> None:
        self.finished |= {*keys}


def run(directory: Path, runner: FormulaRunner, text: str = TWO_METHODS) -> Loop:
    loop = Loop(make_plan(directory, text), directory / "results.jsonl", lambda _result, _standing: None)
    with suppress(ExperimentStopped):
        loop.run(runner)
    return loop


def read_asked_keys(directory: Path) -> frozenset[str]:
    return frozenset(trial.key for trial in read_asked(directory) or ())


def test_a_sweep_stopped_after_any_trial_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    straight = tmp_path / "straight"
    straight.mkdir()
    whole = run(straight, FormulaRunner()).results
    assert len(whole) == NUM_TRIALS
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    for most in (0, 1, 5, 17, 2, 1000):
        run(stopped, FormulaRunner(most=most))
    assert [result.key for result in read_results(stopped / "results.jsonl")] == [result.key for result in whole]
    again = FormulaRunner()
    run(stopped, again)
    assert again.started == []
    assert again.finished == {result.key for result in whole}


def test_a_stop_too_late_for_a_trial_keeps_its_result(tmp_path: Path) -> None:
    class LateRunner(FormulaRunner):
        def start(self, trial: Trial, label: str) -> None:
            if self.started:
                raise ExperimentStopped
            super().start(trial, label)

    loop = Loop(make_plan(tmp_path), tmp_path / "results.jsonl", lambda _result, _standing: None)
    with pytest.raises(ExperimentStopped):
        loop.run(runner := LateRunner())
    assert [result.key for result in read_results(tmp_path / "results.jsonl")] == runner.started
    assert len(runner.started) == 1
    # After the last one nothing is left to stop.
    run(tmp_path, FormulaRunner(most=NUM_TRIALS - 2))
    loop.read()
    loop.run(runner := LateRunner())
    assert (len(runner.started), loop.get_standing().num_left) == (1, 0)


def test_the_time_and_the_samples_of_a_trial_are_those_of_its_epochs(tmp_path: Path) -> None:
    # The first method has one epoch, of 10 s, and the second one four.
    text = '[methods.one]\n[methods.four]\nrun.epochs = 4\ndense_optimizer.name = "sgd"\n'
    loop = run(tmp_path, FormulaRunner(most=1), text)
    assert loop.get_standing().seconds_left == 40.0
    assert [entry.num_samples for entry in loop.list_entries()] == [16_200, 4 * 16_200]
    assert len(run(tmp_path, FormulaRunner(), f"minutes = 0.8\n{text}").results) == 1
    assert len(run(tmp_path, FormulaRunner(), f"minutes = 0.9\n{text}").results) == 2


def test_a_trial_that_does_not_fit_the_time_is_not_started(tmp_path: Path) -> None:
    # Trials of 10 s each, in a minute and a half.
    text = f"minutes = 1.5\n{TWO_METHODS}"
    loop = run(tmp_path, FormulaRunner(), text)
    standing = loop.get_standing()
    assert (len(loop.results), standing.num_left, standing.seconds) == (9, NUM_TRIALS - 9, 90.0)
    assert standing.seconds_left == 10.0 * (NUM_TRIALS - 9)
    assert len(run(tmp_path, FormulaRunner(), text).results) == 9
    assert len(run(tmp_path, FormulaRunner(), text.replace("1.5", "1.7")).results) == 10
    parallel = tmp_path / "parallel"
    parallel.mkdir()
    assert len(run(parallel, FormulaRunner(max_running=4), text).results) <= 12


def test_a_trial_that_fails_is_tried_once_a_call(tmp_path: Path) -> None:
    def fail(trial: Trial) -> TrialResult:
        return make_end(trial, reason="worker_crashed" if trial.seed == 1 else "completed")

    first = FormulaRunner(fail)
    loop = run(tmp_path, first)
    assert len(first.started) == len({*first.started}) == 24
    assert loop.get_standing().num_left == NUM_TRIALS - 12
    second = FormulaRunner()
    loop = run(tmp_path, second)
    assert len(second.started) == NUM_TRIALS - 12
    assert loop.get_standing().num_left == 0


def test_at_most_so_many_trials_run_at_once_and_those_of_one_stage_alone(tmp_path: Path) -> None:
    runner = FormulaRunner(max_running=5)
    loop = run(tmp_path, runner)
    assert (len(loop.results), runner.most_running) == (NUM_TRIALS, 5)


def test_trials_are_listed_with_their_samples_and_what_is_to_be_chosen(tmp_path: Path) -> None:
    listed = run(tmp_path, FormulaRunner(most=3)).list_entries()
    assert (len(listed), {entry.num_samples for entry in listed}) == (NUM_TRIALS, {16_200})
    assert sum(entry.is_done for entry in listed) == 3
    unknown = [entry for entry in listed if not entry.is_known]
    assert {entry.trial.stage for entry in unknown} == {"confirm"}
    assert all("with chosen settings" in entry.label and "learning_rate" not in entry.label for entry in unknown)
    runner = FormulaRunner()
    run(tmp_path, runner)
    begun = {result.key for result in read_results(tmp_path / "results.jsonl")[:3]}
    assert {entry.trial.key for entry in listed[:3]} == begun
    known = [entry.trial.key for entry in listed[3:] if entry.is_known]
    assert known == runner.started[: len(known)]
    assert listed[3 + len(known) :] == unknown


def test_the_keys_that_the_document_asks_for_lie_beside_the_results_before_their_trials_run(tmp_path: Path) -> None:
    class CheckingRunner(FormulaRunner):
        def start(self, trial: Trial, label: str) -> None:
            assert trial.key in read_asked_keys(tmp_path)
            super().start(trial, label)

    whole = run(tmp_path, CheckingRunner()).results
    assert read_asked_keys(tmp_path) == {result.key for result in whole}
    # Of three rates one is asked for again, and the two that are new.
    loop = run(tmp_path, CheckingRunner(most=0), TWO_METHODS.replace("[0.01, 0.03, 0.1]", "[0.2, 0.3, 0.1]"))
    standing = loop.get_standing()
    assert (standing.num_done, standing.num_all, standing.seconds) == (8, NUM_TRIALS, 80.0)
    asked = read_asked_keys(tmp_path)
    assert len(asked) == NUM_TRIALS - 8
    assert asked & {result.key for result in whole} == {
        result.key
        for result in whole
        if result.settings["dense_optimizer.learning_rate"] == 0.1 and result.stage == "grid"
    }


def test_trials_of_an_earlier_choice_count_until_an_extended_grid_has_chosen(
    tmp_path: Path,
) -> None:
    def end(trial: Trial) -> TrialResult:
        # The rate that is added is the best with Adam alone.
        rate = trial.settings["dense_optimizer.learning_rate"]
        return make_end(trial, 0.4 if (rate, trial.method) == (0.3, "adam") else 0.5 + rate)

    extended = TWO_METHODS.replace("[0.01, 0.03, 0.1]", "[0.01, 0.03, 0.1, 0.3]")
    whole = {result.key: result for result in run(tmp_path, FormulaRunner(end)).results}
    confirming = {key: result for key, result in whole.items() if result.stage == "confirm"}
    first = run(tmp_path, FormulaRunner(end, most=3), extended)
    assert whole.keys() <= read_asked_keys(tmp_path)
    # They are no part of the sweep that is left.
    assert not confirming.keys() & {entry.trial.key for entry in first.list_entries() if entry.is_known}
    assert first.get_standing().num_all == 2 * 2 * (4 * 2 + 2)
    run(tmp_path, FormulaRunner(end), extended)
    counted = confirming.keys() & read_asked_keys(tmp_path)
    assert {confirming[key].method for key in counted} == {"sgd"}
    assert len(counted) == 4
    # Of settings that are not in the grid, or of other seeds, none is the result.
    run(tmp_path, FormulaRunner(end, most=0), extended.replace("[0.01, ", "[0.02, "))
    assert not confirming.keys() & read_asked_keys(tmp_path)
    run(tmp_path, FormulaRunner(end, most=0), extended.replace("0.3]", "0.2]").replace("[10, 11]", "[11, 12]"))
    assert {confirming[key].seed for key in confirming.keys() & read_asked_keys(tmp_path)} == {11}
