"""Kept scores of trials, compared by a program of the trainer, since this package imports no numpy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.cli.child_program import run_program
from service.cli.reporting.cells import ReportCell
from service.cli.reporting.load import LoadedTrial
from service.cli.trainer import require_trainer

PROGRAM = "dlrm.programs.compare_scores"
Pair = tuple[str, str]
"""Keys of two trials."""


@dataclass(frozen=True)
class PairedScores:
    """Metrics of a first trial less those of a second, on the same rows, with standard errors over samples of rows."""

    auc: float | None
    auc_standard_error: float | None
    log_loss: float
    log_loss_standard_error: float | None


@dataclass(frozen=True)
class MeasuredScores:
    """Figures that the kept scores tell beside the final metrics."""

    log_loss_errors: Mapping[str, float | None]
    """Standard error of the log-loss over samples of evaluation rows, by key of the trial."""
    pairs: Mapping[Pair, PairedScores]


def measure_scores(
    cells: Sequence[ReportCell], pairs: Sequence[tuple[LoadedTrial, LoadedTrial]], faults: Mapping[str, str]
) -> MeasuredScores:
    """Measure the trials that are the only one of their cell, and `pairs` that may be compared row by row.

    faults: by key, of the trials whose scores cannot be used. Raises BadInputError for a file with numbers that are no
    scores, CommandError where numpy is missing, and ProgramStopped.
    """
    alone = [cell.trials[0] for cell in cells if len(cell.trials) == 1 and cell.trials[0].result.key not in faults]
    if not alone and not pairs:
        return MeasuredScores({}, {})
    require_trainer("numpy")
    request = {
        "singles": [{"logits": _locate(trial, "logits"), **_locate_rows(trial)} for trial in alone],
        "pairs": [
            {"first": _locate(first, "logits"), "second": _locate(second, "logits"), **_locate_rows(first)}
            for first, second in pairs
        ],
    }
    measured: dict[str, Any] = run_program(PROGRAM, [], request, "comparing", is_shown=False)
    return MeasuredScores(
        {
            trial.result.key: single["log_loss_standard_error"]
            for trial, single in zip(alone, measured["singles"], strict=True)
        },
        {
            (first.result.key, second.result.key): PairedScores(**pair)
            for (first, second), pair in zip(pairs, measured["pairs"], strict=True)
        },
    )


def _locate_rows(trial: LoadedTrial) -> dict[str, str | None]:
    return {"labels": _locate(trial, "labels"), "weights": _locate(trial, "weights")}


def _locate(trial: LoadedTrial, name: str) -> str | None:
    assert trial.result.scores is not None, "its trial has no fault"
    file: str | None = getattr(trial.result.scores, name)
    return None if file is None else str(trial.file.parent / file)
