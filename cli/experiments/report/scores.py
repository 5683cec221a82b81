"""Kept scores of trials, compared by a program of the trainer. Results may be read without their files of scores."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.experiments.report.cells import ReportCell
from cli.experiments.report.load import LoadedTrial
from cli.local.child_program import run_program

PROGRAM = "dlrm.programs.compare_scores"
Pair = tuple[str, str]
"""Keys of two trials."""


@dataclass(frozen=True)
class PairedScores:
    """Difference of the metrics of two trials on the same rows, with standard errors over samples of rows."""

    auc: float | None
    auc_standard_error: float | None
    log_loss: float
    log_loss_standard_error: float | None


@dataclass(frozen=True)
class MeasuredScores:
    """Figures from the kept scores beside the final metrics."""

    log_loss_errors: Mapping[str, float | None]
    """Standard error of the log-loss over samples of evaluation rows, by key of the trial."""
    pairs: Mapping[Pair, PairedScores]
    """Differences of the pairs whose scores can be used."""
    faults: Mapping[str, str]
    """Reasons why the scores of a trial cannot be used, which name its file, by key."""


def find_missing_scores(cells: Sequence[ReportCell]) -> dict[str, str]:
    """Find the trials of `cells` without files of scores, and return the reason by key."""
    reasons = {trial.result.key: _find_reason(trial) for cell in cells for trial in cell.trials}
    return {key: reason for key, reason in reasons.items() if reason is not None}


def _find_reason(trial: LoadedTrial) -> str | None:
    scores = trial.result.scores
    if scores is None:
        return "scores are not kept"
    files = [file for file in (scores.logits, scores.labels, scores.weights) if file is not None]
    are_there = all((trial.file.parent / file).exists() for file in files)
    return None if are_there else "files of scores are not there"


def measure_scores(
    cells: Sequence[ReportCell], pairs: Sequence[tuple[LoadedTrial, LoadedTrial]], missing: Collection[str]
) -> MeasuredScores:
    """Measure each trial that is the only one of its cell, and compare `pairs` row by row.

    missing: keys of the trials whose files of scores are not there. Raises CommandError and ProgramStopped.
    """
    alone = [cell.trials[0] for cell in cells if len(cell.trials) == 1 and cell.trials[0].result.key not in missing]
    if not alone and not pairs:
        return MeasuredScores({}, {}, {})
    trials = {trial.result.key: trial for trial in [*alone, *(trial for pair in pairs for trial in pair)]}
    request = {
        "trials": {key: _locate(trial) for key, trial in trials.items()},
        "singles": [trial.result.key for trial in alone],
        "pairs": [[first.result.key, second.result.key] for first, second in pairs],
    }
    measured: dict[str, Any] = run_program(PROGRAM, [], request, "comparing", is_shown=False)
    singles, compared = measured["singles"], measured["pairs"]
    return MeasuredScores(
        {
            trial.result.key: single["log_loss_standard_error"]
            for trial, single in zip(alone, singles, strict=True)
            if single is not None
        },
        {
            (first.result.key, second.result.key): PairedScores(**pair)
            for (first, second), pair in zip(pairs, compared, strict=True)
            if pair is not None
        },
        {
            key: f"{getattr(trials[key].result.scores, fault['file'])} {fault['reason']}"
            for key, fault in measured["faults"].items()
        },
    )


def _locate(trial: LoadedTrial) -> dict[str, str | int | None]:
    scores, directory = trial.result.scores, trial.file.parent
    assert scores is not None, "its scores are there"
    return {
        "logits": str(directory / scores.logits),
        "labels": str(directory / scores.labels),
        "weights": None if scores.weights is None else str(directory / scores.weights),
        "num_rows": scores.num_rows,
    }
