"""Order of a sweep's trials: the due ones, by the results so far, and the settings that results choose."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cli.experiments.search.halving import MIN_STEPS, Rung, choose_survivors, count_survivors, list_rungs
from cli.experiments.sweep.document import Sweep
from cli.experiments.sweep.trial import make_trial
from cli.experiments.trials.fields import Settings
from cli.experiments.trials.results import Stage, TrialResult
from cli.experiments.trials.runner import Trial
from cli.local.errors import BadInputError

Results = Mapping[str, TrialResult]
"""Trials that are done or have diverged, by key."""
MANY_STEPS = MIN_STEPS * 10**6
"""Steps enough for any number of rungs, which the document of a sweep states."""


@dataclass(frozen=True)
class Cell:
    """One method at one combination of the compared values: it has a best setting of its own."""

    method: str
    compared: Settings
    settings: Sequence[Settings]
    """Settings that are tried."""
    rungs: Sequence[Rung]
    """Lengths of runs, shortest first; without halving the whole length alone."""


@dataclass(frozen=True)
class CellState:
    """A cell by the results so far."""

    cell: Cell
    known: Sequence[Trial]
    """Trials that belong to the sweep by the results so far, with the due ones."""
    due: Sequence[Trial]
    """Trials that must run before the next ones are known."""
    chosen: Sequence[Trial]
    """Trials of the chosen settings over the whole length, a seed each; empty while they are not known, or if all
    settings diverge."""
    is_chosen: bool
    """Whether the choice is made: all trials that choose are done or have diverged."""
    confirming: Sequence[Trial]
    """Trials that are the result of the chosen settings."""


@dataclass
class Plan:
    """Trials of a sweep."""

    sweep: Sweep
    cells: list[Cell] = field(init=False)
    _trials: dict[tuple[object, ...], Trial] = field(init=False, default_factory=dict[tuple[object, ...], Trial])
    """Trials by what makes them, since a document takes time to validate."""

    def __post_init__(self) -> None:
        config = self.sweep.config
        self.cells = [
            Cell(method, compared, settings := config.list_settings(method), self._list_rungs(len(settings)))
            for compared in config.list_compared()
            for method in config.methods
        ]

    def list_due(self, results: Results) -> list[Trial]:
        """List the due trials, in the order in which they run."""
        due = [(self.rank(cell, trial), trial) for cell in self.cells for trial in self.follow(cell, results).due]
        return [trial for _, trial in sorted(due, key=lambda entry: entry[0])]

    def rank(self, cell: Cell, trial: Trial) -> tuple[int, float, int, int, int]:
        """Return the sort key of a trial: all methods advance side by side, so that a sweep cut short has spent the
        same effort on each."""
        is_confirming = trial.stage == "confirm"
        seeds = self.sweep.config.confirm_seeds if is_confirming else self.sweep.config.seeds
        setting = 0 if is_confirming else cell.settings.index(trial.settings)
        return is_confirming, trial.fraction, seeds.index(trial.seed), setting, self.cells.index(cell)

    def follow(self, cell: Cell, results: Results) -> CellState:
        """Follow the results of a cell from rung to rung, to its choice and to the trials that confirm it."""
        config = self.sweep.config
        candidates: list[int] = list(range(len(cell.settings)))
        losses: dict[int, float] = {}
        known: list[Trial] = []
        for rung in cell.rungs:
            stage: Stage = "grid" if rung.fraction == 1.0 else "rung"
            of_rung = {
                number: [self._get(stage, cell, cell.settings[number], seed, rung.fraction) for seed in config.seeds]
                for number in candidates
            }
            known += [trial for trials in of_rung.values() for trial in trials]
            self._check_validation_rows(cell, known, results)
            due = [trial for trial in known if trial.key not in results]
            if due:
                return CellState(cell, known, due, [], is_chosen=False, confirming=[])
            losses = {
                number: loss
                for number, trials in of_rung.items()
                if (loss := compute_mean_loss([results[trial.key] for trial in trials], len(cell.settings))) is not None
            }
            if rung != cell.rungs[-1]:
                candidates = choose_survivors(losses, len(candidates))
        if not losses:
            return CellState(cell, known, [], [], is_chosen=True, confirming=[])
        best = cell.settings[min(losses, key=lambda number: (losses[number], number))]
        chosen = [self._get("grid", cell, best, seed) for seed in config.seeds]
        confirming = [self._get("confirm", cell, best, seed) for seed in config.confirm_seeds]
        due = [trial for trial in confirming if trial.key not in results]
        return CellState(cell, [*known, *confirming], due, chosen, is_chosen=True, confirming=confirming)

    def list_earlier_confirming(self, cell: Cell, results: Results) -> list[Trial]:
        """List the trials with a result that confirm settings of the cell while the best ones are not known.

        An earlier document, such as one with a smaller grid, has chosen them. Empty once the choice is made.
        """
        if self.follow(cell, results).is_chosen:
            return []
        # Others need not be made, which takes time.
        seeds = {result.seed for result in results.values()} & {*self.sweep.config.confirm_seeds}
        return [
            trial
            for settings in cell.settings
            for seed in self.sweep.config.confirm_seeds
            if seed in seeds and (trial := self._get("confirm", cell, settings, seed)).key in results
        ]

    def list_expected(self, cell: Cell, results: Results) -> list[Trial]:
        """List the trials of a cell. Unknown ones are as many and as long, but have the first settings."""
        state = self.follow(cell, results)
        if state.is_chosen:
            return [*state.known]
        config, trials = self.sweep.config, [*state.known]
        num_settings = len(cell.settings)
        for rung in cell.rungs:
            if all(trial.fraction < rung.fraction for trial in state.known):
                stage: Stage = "grid" if rung.fraction == 1.0 else "rung"
                for settings in cell.settings[:num_settings]:
                    trials += [self._get(stage, cell, settings, seed, rung.fraction) for seed in config.seeds]
            num_settings = count_survivors(num_settings)
        return trials + [self._get("confirm", cell, cell.settings[0], seed) for seed in config.confirm_seeds]

    def _list_rungs(self, num_settings: int) -> list[Rung]:
        if self.sweep.config.halving is None:
            return [Rung(0, 1.0)]
        return list_rungs(num_settings, MANY_STEPS)[-self.sweep.config.halving.rungs :]

    def _check_validation_rows(self, cell: Cell, trials: Sequence[Trial], results: Results) -> None:
        """Check that trials had validation rows to choose by: a share of few rows may be none. Raises BadInputError."""
        if len(cell.settings) == 1:
            return
        for trial in trials:
            result = results.get(trial.key)
            if result is not None and result.outcome == "done" and result.metrics.get("validation_log_loss") is None:
                raise BadInputError(
                    f"{self.sweep.path}: run.validation_fraction: {trial.label} had no validation rows, so that "
                    "nothing can choose among its settings (valid: a larger share, or one setting for each method)"
                )

    def _get(self, stage: Stage, cell: Cell, settings: Settings, seed: int, fraction: float = 1.0) -> Trial:
        given = (stage, cell.method, repr(cell.compared), repr(settings), seed, fraction)
        if given not in self._trials:
            self._trials[given] = make_trial(self.sweep, stage, cell.method, cell.compared, settings, seed, fraction)
        return self._trials[given]


def compute_mean_loss(results: Sequence[TrialResult], num_settings: int) -> float | None:
    """Compute the mean log-loss on the validation rows over the seeds of a setting, by which it is chosen.

    num_settings: settings among which is chosen; a single one needs no validation rows, and has a mean of 0. None if a
    seed has diverged, or has no validation rows.
    """
    if any(result.outcome != "done" for result in results):
        return None
    if num_settings == 1:
        return 0.0
    losses = [result.metrics.get("validation_log_loss") for result in results]
    known = [loss for loss in losses if loss is not None]
    return statistics.fmean(known) if len(known) == len(losses) else None
