"""Cells of a report: of each method, at each combination of the compared values, the trials of its best setting."""

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.experiments.report.batches import TrialBatch
from cli.experiments.report.load import LoadedResults, LoadedTrial
from cli.experiments.sweep.plan import compute_mean_loss
from cli.experiments.trials.fields import Settings, format_cell, format_value, list_edges
from cli.experiments.trials.results import TrialNames
from cli.local.errors import BadInputError

EQUAL_TOLERANCE = 0.01
"""Relative difference up to which two numbers of samples, or of steps, are the same: a batch that does not divide the
rows changes them a little."""


@dataclass(frozen=True)
class ReportCell:
    """Result of one method at one combination of the compared values."""

    method: str
    compared: Settings
    settings: Settings | None
    """Best setting; None if all diverge, or none is trained to the end."""
    is_confirmed: bool
    """Whether the trials confirm, with seeds that have chosen nothing."""
    trials: Sequence[LoadedTrial]
    """Trials of the best setting that are done, a seed each."""
    num_seeds: int
    """Seeds of the best setting, with seeds that have diverged or failed."""
    num_diverged: int
    """Trials that have diverged, of all settings."""
    num_failed: int
    num_missing: int
    """Trials that the sweep asks for and that have not ended yet."""
    num_missing_seeds: int
    """Trials among the missing ones with the best setting, which would be part of its result."""
    num_settings: int
    """Settings that were tried."""
    is_open: bool
    """Whether trials that choose are missing or have failed, so that another setting may come out as the best."""
    edges: Sequence[str]
    """Fields whose best value is the lowest or the highest one tried, each behind the word "lowest" or "highest"."""

    @property
    def label(self) -> str:
        """Words for the method and the compared values, such as "adam, 4096"."""
        return format_cell(self.method, self.compared)

    @property
    def is_chosen(self) -> bool:
        """Whether its setting is the best of several; with one setting nothing is chosen."""
        return self.num_settings > 1 or self.is_open

    @property
    def batch(self) -> TrialBatch:
        """Batch of the trials; without a size if they have different ones."""
        batches = [trial.batch for trial in self.trials]
        sizes = {batch.size for batch in batches}
        return TrialBatch(sizes.pop() if len(sizes) == 1 else None, any(batch.is_growing for batch in batches))

    def list_values(self, metric: str) -> list[float]:
        """List a final metric of all trials; empty if one has none."""
        values = [trial.result.metrics.get(metric) for trial in self.trials]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else []

    def compute_mean(self, field: str) -> float | None:
        """Compute the mean of a number of the lines, such as `num_steps`; None if one has none."""
        return _average([getattr(trial.result, field) for trial in self.trials])

    def compute_cpu_seconds(self) -> float | None:
        """Compute the mean of the known CPU seconds of trials; None if there are none."""
        seconds = [trial.result.cpu_seconds for trial in self.trials]
        return _average([known for known in seconds if known is not None])

    def compute_speed(self) -> float | None:
        """Compute the mean samples per second of training; None if a trial has none."""
        lengths = [(trial.result.num_samples, trial.result.training_seconds) for trial in self.trials]
        return _average([samples / seconds if samples and seconds else None for samples, seconds in lengths])


def _average(values: Sequence[float | None]) -> float | None:
    """Return the mean of values; None without any, or if one is None."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def make_cells(loaded: LoadedResults) -> list[ReportCell]:
    """Make the cells, by compared values and then in the order of the methods.

    Raises BadInputError if not one trial of a whole length is done.
    """
    if not any(trial.result.outcome == "done" and trial.result.fraction == 1.0 for trial in loaded.trials):
        files = ", ".join(map(str, loaded.files))
        raise BadInputError(
            f"{files}: no trial of the whole length is done, so that there is nothing to report "
            "(valid: results of `dlrm sweep` after its first whole run)"
        )
    groups: dict[str, list[LoadedTrial]] = {}
    for trial in loaded.trials:
        groups.setdefault(_name_cell(trial.result), []).append(trial)
    missing: dict[str, list[TrialNames]] = {}
    for asked in loaded.missing:
        missing.setdefault(_name_cell(asked), []).append(asked)
    cells = [_make_cell(group, missing.get(name, [])) for name, group in groups.items()]
    methods = list(dict.fromkeys(cell.method for cell in cells))
    return sorted(
        cells, key=lambda cell: ([_order(value) for value in cell.compared.values()], methods.index(cell.method))
    )


def are_equal(one: float, other: float) -> bool:
    """Whether two numbers of samples, or of steps, are the same within EQUAL_TOLERANCE."""
    return abs(one - other) <= EQUAL_TOLERANCE * max(one, other)


def count_unstarted(loaded: LoadedResults) -> dict[str, int]:
    """Count the missing trials of cells without an ended trial, by the label of the cell."""
    started = {_name_cell(trial.result) for trial in loaded.trials}
    unstarted = (trial for trial in loaded.missing if _name_cell(trial) not in started)
    return dict(Counter(trial.cell for trial in unstarted))


def _name_cell(trial: TrialNames) -> str:
    return json.dumps([trial.method, trial.compared], sort_keys=True)


def _name_settings(trial: TrialNames) -> str:
    return json.dumps(trial.settings, sort_keys=True)


def _make_cell(trials: Sequence[LoadedTrial], missing: Sequence[TrialNames]) -> ReportCell:
    """Make a cell. missing: trials that the sweep asks for and that have not ended."""
    first = trials[0].result
    whole = _group_by_settings(trials, "grid")
    confirming = _group_by_settings(trials, "confirm")
    tried = {_name_settings(trial.result): trial.result.settings for trial in trials}
    is_open = len(tried.keys() | {_name_settings(trial) for trial in missing}) > 1 and (
        any(trial.stage != "confirm" for trial in missing)
        or any(trial.result.stage != "confirm" and trial.result.outcome == "failed" for trial in trials)
    )
    best = _choose(whole, confirming, is_open=is_open)
    own = confirming.get(best, whole.get(best, [])) if best is not None else []
    grid: dict[str, list[Any]] = {}
    for settings in [*tried.values(), *(trial.settings for trial in missing)]:
        for field, value in settings.items():
            if value not in grid.setdefault(field, []):
                grid[field].append(value)
    settings = own[0].result.settings if own else None
    done = [trial for trial in own if trial.result.outcome == "done"]
    return ReportCell(
        method=first.method,
        compared=first.compared,
        settings=settings,
        is_confirmed=bool(best is not None and best in confirming),
        trials=sorted(done, key=lambda trial: trial.result.seed),
        num_seeds=len(own),
        num_diverged=sum(trial.result.outcome == "diverged" for trial in trials),
        num_failed=sum(trial.result.outcome == "failed" for trial in trials),
        num_missing=len(missing),
        num_missing_seeds=sum(
            trial.stage == own[0].result.stage and _name_settings(trial) == best for trial in missing if own
        ),
        num_settings=len(tried),
        is_open=is_open,
        edges=list_edges(grid, settings or {}),
    )


def _group_by_settings(trials: Sequence[LoadedTrial], stage: str) -> dict[str, list[LoadedTrial]]:
    groups: dict[str, list[LoadedTrial]] = {}
    for trial in trials:
        if trial.result.stage == stage and trial.result.fraction == 1.0:
            groups.setdefault(_name_settings(trial.result), []).append(trial)
    return groups


def _choose(
    whole: Mapping[str, Sequence[LoadedTrial]], confirming: Mapping[str, Sequence[LoadedTrial]], *, is_open: bool
) -> str | None:
    """Choose the best setting as the sweep does, over the seeds that all settings have: it may have been cut short.

    Settings of several documents may have no seed in common: then only settings with the most seeds are compared. While
    the choice is open, or without the trials that chose (perhaps in a file not given), the confirmed setting is best.
    """
    confirmed = max(confirming, key=lambda settings: len(confirming[settings]), default=None)
    if is_open and confirmed is not None:
        return confirmed
    ended = {
        settings: by_seed
        for settings, trials in whole.items()
        if (by_seed := {trial.result.seed: trial.result for trial in trials if trial.result.outcome != "failed"})
    }
    all_seeds = {seed for by_seed in ended.values() for seed in by_seed}
    seeds = [seed for seed in all_seeds if all(seed in by_seed for by_seed in ended.values())]
    most = max(map(len, ended.values()), default=0)
    losses = {
        settings: loss
        for settings, by_seed in ended.items()
        if (seeds or len(by_seed) == most)
        and all(result.outcome == "done" for result in by_seed.values())
        and (loss := compute_mean_loss([by_seed[seed] for seed in seeds or by_seed], len(ended))) is not None
    }
    return min(losses, key=lambda settings: losses[settings], default=confirmed)


def _order(value: Any) -> tuple[bool, float, str]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not is_number, float(value) if is_number else 0.0, format_value(value)
