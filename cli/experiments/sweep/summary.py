"""Summary of a sweep: for each method, at each combination of the compared values, what its chosen settings reach."""

from collections.abc import Sequence
from dataclasses import dataclass

from cli.experiments.sweep.plan import Cell, Plan
from cli.experiments.trials.fields import Settings, list_edges
from cli.experiments.trials.results import TrialResult, index_results
from dlrm.record.intervals import Estimate, estimate_mean


@dataclass(frozen=True)
class Row:
    """Result of one method at one combination of the compared values."""

    method: str
    compared: Settings
    num_settings: int
    """Settings that are tried; with a single one nothing is chosen."""
    is_chosen: bool
    """Whether the choice is made: all trials that choose are done or have diverged."""
    settings: Settings | None
    """Chosen settings; None while they are not known, and if all settings diverge."""
    is_confirmed: bool
    """Whether all seeds that confirm are done; without any, the trials that chose are the result."""
    results: Sequence[TrialResult]
    """Trials that are the result and are done, a seed each."""
    num_seeds: int
    """Number of seeds of the result, with seeds that have diverged or are not done."""
    num_diverged: int
    """Trials that have diverged, whether they choose or confirm."""
    num_failed: int
    """Trials that have failed and are not done since."""
    edges: Sequence[str]
    """Fields whose chosen value is the lowest or the highest one tried, with that word: a better one may be beyond."""

    def estimate(self, metric: str) -> Estimate | None:
        """Estimate the mean of a metric over the seeds that are done; None if one has none."""
        values = [result.metrics.get(metric) for result in self.results]
        known = [value for value in values if value is not None]
        return estimate_mean(known) if known and len(known) == len(values) else None


def summarise(plan: Plan, results: Sequence[TrialResult]) -> list[Row]:
    """Summarise the results of a sweep, in the order of its compared values and methods."""
    return [_make_row(plan, cell, results) for cell in plan.cells]


def _make_row(plan: Plan, cell: Cell, results: Sequence[TrialResult]) -> Row:
    done = index_results(results)
    state = plan.follow(cell, done)
    keys = {trial.key for trial in state.known}
    trials = state.confirming or state.chosen
    ended = [done[trial.key] for trial in trials if trial.key in done]
    grid = plan.sweep.config.get_grid(cell.method)
    settings = state.chosen[0].settings if state.chosen else None
    return Row(
        method=cell.method,
        compared=cell.compared,
        num_settings=len(cell.settings),
        is_chosen=state.is_chosen,
        settings=settings,
        is_confirmed=bool(state.confirming) and all(trial.key in done for trial in state.confirming),
        results=[result for result in ended if result.outcome == "done"],
        num_seeds=len(trials),
        num_diverged=sum(done[key].outcome == "diverged" for key in keys if key in done),
        num_failed=len({result.key for result in results if result.key in keys - done.keys()}),
        edges=list_edges(grid, settings or {}),
    )
