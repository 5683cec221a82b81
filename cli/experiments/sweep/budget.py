"""Time of a sweep: what its trials have taken, and what the others will take."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cli.experiments.sweep.results import TrialResult
from cli.experiments.sweep.trials import Trial
from dlrm.config import count_synthetic_train_rows, count_validation_rows
from dlrm.record import EndReason


@dataclass(frozen=True)
class EndedTrial:
    """Trial of the sweep that has ended."""

    trial: Trial
    result: TrialResult


def estimate_seconds(trial: Trial, ended: Sequence[EndedTrial]) -> float | None:
    """Estimate the seconds of a trial by those that were most like it; None if none has run to its end yet.

    Runs of other lengths count by their epochs.
    """
    done = [other for other in ended if other.result.outcome == "done"]
    same_values = [other for other in done if other.trial.compared == trial.compared]
    same_method = [other for other in same_values if other.trial.method == trial.method]
    for alike in (same_method, same_values, done):
        same_length = [other.result.seconds for other in alike if _compute_ratio(trial, other.trial) == 1.0]
        if same_length:
            return statistics.fmean(same_length)
        if alike:
            return statistics.fmean(other.result.seconds * _compute_ratio(trial, other.trial) for other in alike)
    return None


def estimate_rest(trials: Iterable[Trial], ended: Sequence[EndedTrial]) -> float | None:
    """Estimate the seconds of all `trials` together; None if nothing is known yet."""
    estimates = [estimate_seconds(trial, ended) for trial in trials]
    return sum(seconds or 0.0 for seconds in estimates) if None not in estimates else None


def estimate_samples(trial: Trial, ended: Sequence[EndedTrial]) -> int | None:
    """Estimate the training rows that a trial consumes, an epoch's as often as it has epochs.

    None if the rows of files are not known, before the first result, and where the epochs are left open.
    """
    epochs, data = trial.spec.run.epochs, trial.spec.data
    if epochs != "auto" and data.synthetic is not None:
        run, num_rows = trial.spec.run, count_synthetic_train_rows(data)
        held_out = 0.0 if run.validation_fraction == "auto" else run.validation_fraction
        return round((num_rows - count_validation_rows(num_rows, held_out, data.split)) * epochs)
    for other in ended:
        result = other.result
        if result.outcome == "done" and result.reason == EndReason.COMPLETED and result.num_samples:
            return round(result.num_samples * _compute_ratio(trial, other.trial))
    return None


def _compute_ratio(trial: Trial, other: Trial) -> float:
    """Compute how many times as long as another one a trial is; 1 where one leaves its epochs open."""
    epochs, others = trial.spec.run.epochs, other.spec.run.epochs
    return 1.0 if epochs == "auto" or others == "auto" else epochs / others
