"""The loop of a sweep: starts what is due while there is time, and writes each result as it comes."""

import statistics
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from cli.experiments.sweep.plan import Plan
from cli.experiments.trials.results import (
    TrialNames,
    TrialResult,
    append_result,
    index_results,
    read_results,
    write_asked,
)
from cli.experiments.trials.runner import Ended, Runner, Trial
from dlrm.config import count_synthetic_train_rows, count_validation_rows
from dlrm.record import EndReason


@dataclass(frozen=True)
class Standing:
    """Standing of a sweep: how far it has come."""

    num_done: int
    """Trials that need no other run."""
    num_all: int
    """Trials of the whole sweep, as far as that is known."""
    seconds: float
    """Seconds of all runs so far, failed ones included."""
    seconds_left: float | None
    """Estimated seconds of the runs that are left, one after another; None while no run has ended."""

    @property
    def num_left(self) -> int:
        return self.num_all - self.num_done


@dataclass(frozen=True)
class Entry:
    """One trial in the list of a sweep."""

    trial: Trial
    is_known: bool
    """Whether its settings are known; earlier trials choose the settings of later rungs, and to be confirmed."""
    is_done: bool
    num_samples: int | None
    """Training rows that it consumes, as estimated; None if that is not known."""

    @property
    def label(self) -> str:
        """Words for the trial, and whether it confirms or its settings are yet to be chosen."""
        if self.is_known:
            return f"{self.trial.label}{', confirms' if self.trial.stage == 'confirm' else ''}"
        return self.trial.model_copy(update={"settings": {}}).label + ", with chosen settings"

    def to_record(self) -> dict[str, Any]:
        """Return the entry as JSON."""
        chosen = {} if self.is_known else {"key": None, "settings": None}
        names = self.trial.model_dump(include={*TrialNames.model_fields})
        return {**names, **chosen, "is_done": self.is_done, "num_samples": self.num_samples}


@dataclass
class Loop:
    """Loop over the trials of one sweep. The file has what earlier commands have finished."""

    plan: Plan
    file: Path
    """File of the results."""
    on_result: Callable[[TrialResult, Standing], None]
    """Called with each trial that ends."""
    results: list[TrialResult] = field(init=False)
    """All results of the file, also of other sweeps."""

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> None:
        """Read the results. Raises BadInputError."""
        self.results = read_results(self.file)

    def run(self, runner: Runner) -> None:
        """Run the trials. Raises ExperimentStopped if it is stopped, and CommandError."""
        asked = self._list_asked()
        write_asked(self.file.parent, asked)
        # A kill may have come between a result and this.
        runner.finish(index_results(self.results))
        begun: set[str] = set()
        running: dict[str, Trial] = {}
        while True:
            for trial in self.list_next(begun, [*running.values()], runner.max_running):
                begun.add(trial.key)
                running[trial.key] = trial
                standing = self.get_standing()
                runner.start(trial, f"{standing.num_done + len(running)}/{standing.num_all}")
            if not running:
                break
            for trial, result in runner.wait():
                del running[trial.key]
                append_result(self.file, result)
                self.results.append(result)
                # Before any of them has a result.
                if (now := self._list_asked()) != asked:
                    write_asked(self.file.parent, asked := now)
                # A trial that failed goes on from what it has left.
                runner.finish([trial.key] if result.outcome != "failed" else [])
                self.on_result(result, self.get_standing())

    def get_standing(self) -> Standing:
        """Count the trials, and the time."""
        results = index_results(self.results)
        expected = [trial for cell in self.plan.cells for trial in self.plan.list_expected(cell, results)]
        left = [trial for trial in expected if trial.key not in results]
        ended = self._list_ended()
        seconds = sum(result.seconds for _, result in ended)
        return Standing(len(expected) - len(left), len(expected), seconds, _estimate_rest(left, ended))

    def list_entries(self) -> list[Entry]:
        """List all trials of the sweep, with what is known of them: first the done ones, then the others in order."""
        results, ended = index_results(self.results), self._list_ended()
        ranked: list[tuple[Any, Entry]] = []
        for cell in self.plan.cells:
            known = {trial.key for trial in self.plan.follow(cell, results).known}
            for trial in self.plan.list_expected(cell, results):
                is_done, samples = trial.key in results, _estimate_samples(trial, ended)
                entry = Entry(trial, trial.key in known, is_done, samples)
                ranked.append(((not is_done, *self.plan.rank(cell, trial)), entry))
        return [entry for _, entry in sorted(ranked, key=lambda pair: pair[0])]

    def _list_ended(self) -> list[Ended]:
        """List the trials that belong to this sweep by the results so far and have ended, each with every result."""
        results = index_results(self.results)
        known = {trial.key: trial for cell in self.plan.cells for trial in self.plan.follow(cell, results).known}
        return [(known[result.key], result) for result in self.results if result.key in known]

    def _list_asked(self) -> list[TrialNames]:
        """List the trials that count: of this sweep and, until it has chosen, of earlier choices."""
        results = index_results(self.results)
        return [
            trial
            for cell in self.plan.cells
            for trial in (*self.plan.follow(cell, results).known, *self.plan.list_earlier_confirming(cell, results))
        ]

    def list_next(
        self, begun: Set[str] = frozenset(), running: Sequence[Trial] = (), max_running: int = 1
    ) -> list[Trial]:
        """List the trials to start now: they are due, have not run yet, and fit the time.

        begun: keys of the trials that this command has started.
        """
        due = [trial for trial in self.plan.list_due(index_results(self.results)) if trial.key not in begun]
        del due[max_running - len(running) :]
        minutes, ended = self.plan.sweep.config.minutes, self._list_ended()
        if minutes is None:
            return due
        # The first of all runs in any case, to tell how long one takes.
        seconds = [_estimate_seconds(trial, ended) or 0.0 for trial in (*running, *due)]
        totals = list(accumulate(seconds, initial=sum(result.seconds for _, result in ended)))[-len(due) :]
        return [trial for trial, total in zip(due, totals, strict=False) if total <= 60.0 * minutes]


def _estimate_seconds(trial: Trial, ended: Sequence[Ended]) -> float | None:
    """Estimate the seconds of a trial by the trials most like it; None if none has run to its end yet.

    Runs of other lengths count by their epochs.
    """
    done = [(other, result) for other, result in ended if result.outcome == "done"]
    same_values = [(other, result) for other, result in done if other.compared == trial.compared]
    same_method = [(other, result) for other, result in same_values if other.method == trial.method]
    for alike in (same_method, same_values, done):
        same_length = [result.seconds for other, result in alike if _compute_ratio(trial, other) == 1.0]
        if same_length:
            return statistics.fmean(same_length)
        if alike:
            return statistics.fmean(result.seconds * _compute_ratio(trial, other) for other, result in alike)
    return None


def _estimate_rest(trials: Iterable[Trial], ended: Sequence[Ended]) -> float | None:
    """Estimate the seconds of all `trials` together; None if nothing is known yet."""
    estimates = [_estimate_seconds(trial, ended) for trial in trials]
    return sum(seconds or 0.0 for seconds in estimates) if None not in estimates else None


def _estimate_samples(trial: Trial, ended: Sequence[Ended]) -> int | None:
    """Estimate the training rows that a trial consumes, the rows of an epoch as often as it has epochs.

    None if the rows of files are not known, before the first result, and if the epochs are left open.
    """
    epochs, data = trial.spec.run.epochs, trial.spec.data
    if epochs != "auto" and data.synthetic is not None:
        run, num_rows = trial.spec.run, count_synthetic_train_rows(data)
        held_out = 0.0 if run.validation_fraction == "auto" else run.validation_fraction
        return round((num_rows - count_validation_rows(num_rows, held_out, data.split)) * epochs)
    for other, result in ended:
        if result.outcome == "done" and result.reason == EndReason.COMPLETED and result.num_samples:
            return round(result.num_samples * _compute_ratio(trial, other))
    return None


def _compute_ratio(trial: Trial, other: Trial) -> float:
    """Compute how many times as long as another one a trial is; 1 if one leaves its epochs open."""
    epochs, others = trial.spec.run.epochs, other.spec.run.epochs
    return 1.0 if epochs == "auto" or others == "auto" else epochs / others
