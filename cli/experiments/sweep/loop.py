"""The loop of a sweep: starts what is due while there is time, and writes each result as it comes."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.experiments.sweep.asked import AskedTrial, write_asked
from cli.experiments.sweep.budget import EndedTrial, estimate_rest, estimate_samples, estimate_seconds
from cli.experiments.sweep.plan import Plan
from cli.experiments.sweep.results import TrialResult, append_result, index_results, read_results
from cli.experiments.sweep.runner import Runner, SweepStopped
from cli.experiments.sweep.trials import Trial


@dataclass(frozen=True)
class Standing:
    """Standing of a sweep: how far it has come."""

    num_done: int
    """Trials that need no other run."""
    num_all: int
    """Trials of the whole sweep, as far as that is known."""
    seconds: float
    """Seconds of all runs so far, those that failed included."""
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
    """Whether its settings are known; those of later rungs, and those to confirm, are chosen by earlier trials."""
    is_done: bool
    num_samples: int | None
    """Training rows that it consumes, as estimated; None if that is not known."""

    @property
    def label(self) -> str:
        """Words that tell the trial from the others."""
        if self.is_known:
            return f"{self.trial.label}{', confirms' if self.trial.stage == 'confirm' else ''}"
        return dataclasses.replace(self.trial, settings={}).label + ", with chosen settings"

    def to_record(self) -> dict[str, Any]:
        """Return the entry as JSON."""
        trial = self.trial
        return {
            "key": trial.key if self.is_known else None,
            "stage": trial.stage,
            "method": trial.method,
            "compared": dict(trial.compared),
            "settings": dict(trial.settings) if self.is_known else None,
            "seed": trial.seed,
            "fraction": trial.fraction,
            "is_done": self.is_done,
            "num_samples": self.num_samples,
        }


@dataclass
class Loop:
    """Loop over the trials of one sweep. What earlier commands have finished is taken from the file."""

    plan: Plan
    file: Path
    """File of the results."""
    on_result: Callable[[TrialResult, Standing], None]
    """Called with each trial that ends."""
    results: list[TrialResult] = field(init=False)
    """All results of the file, those of other sweeps too."""

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> None:
        """Read the results. Raises BadInputError."""
        self.results = read_results(self.file)

    def run(self, runner: Runner) -> None:
        """Run the trials. Raises SweepStopped if it is stopped, and CommandError."""
        asked = self._list_asked()
        write_asked(self.file.parent, asked)
        # A kill may have come between a result and this.
        runner.finish(index_results(self.results))
        begun: set[str] = set()
        running: dict[str, Trial] = {}
        while True:
            for trial in self._list_next(begun, [*running.values()], runner.max_running):
                begun.add(trial.key)
                running[trial.key] = trial
                standing = self.get_standing()
                if runner.is_stop_requested:
                    raise SweepStopped
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
        seconds = sum(other.result.seconds for other in ended)
        return Standing(len(expected) - len(left), len(expected), seconds, estimate_rest(left, ended))

    def list_entries(self) -> list[Entry]:
        """List all trials of the sweep, with what is known of them: those that are done, then the others in order."""
        results, ended = index_results(self.results), self._list_ended()
        ranked: list[tuple[Any, Entry]] = []
        for cell in self.plan.cells:
            known = {trial.key for trial in self.plan.follow(cell, results).known}
            for trial in self.plan.list_expected(cell, results):
                is_done, samples = trial.key in results, estimate_samples(trial, ended)
                entry = Entry(trial, trial.key in known, is_done, samples)
                ranked.append(((not is_done, *self.plan.rank(cell, trial)), entry))
        return [entry for _, entry in sorted(ranked, key=lambda pair: pair[0])]

    def _list_ended(self) -> list[EndedTrial]:
        """List the trials that belong to this sweep by the results so far and have ended, each with every result."""
        results = index_results(self.results)
        known = {trial.key: trial for cell in self.plan.cells for trial in self.plan.follow(cell, results).known}
        return [EndedTrial(known[result.key], result) for result in self.results if result.key in known]

    def _list_asked(self) -> list[AskedTrial]:
        """List the trials that count: those of this sweep and, until it has chosen, those of earlier choices."""
        results = index_results(self.results)
        return [
            AskedTrial.from_trial(trial)
            for cell in self.plan.cells
            for trial in [
                *self.plan.follow(cell, results).known,
                *self.plan.list_earlier_confirming(cell, results),
            ]
        ]

    def _list_next(self, begun: set[str], running: Sequence[Trial], max_running: int) -> list[Trial]:
        """List the trials to start now: those that are due, have not run yet, and fit the time."""
        due = [trial for trial in self.plan.list_due(index_results(self.results)) if trial.key not in begun]
        ended = self._list_ended()
        minutes = self.plan.sweep.config.minutes
        if minutes is None:
            return due[: max_running - len(running)]
        seconds_left = 60.0 * minutes - sum(other.result.seconds for other in ended)
        # The first of all runs in any case, to tell how long one takes.
        seconds_left -= sum(estimate_seconds(trial, ended) or 0.0 for trial in running)
        chosen: list[Trial] = []
        for trial in due[: max_running - len(running)]:
            seconds_left -= estimate_seconds(trial, ended) or 0.0
            if seconds_left < 0.0:
                break
            chosen.append(trial)
        return chosen
