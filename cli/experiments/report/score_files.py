"""Files of kept scores that are there, so that trials may be paired by them: results may be read without scores."""

from collections.abc import Sequence

from cli.experiments.report.cells import ReportCell
from cli.experiments.report.load import LoadedTrial


def find_missing_scores(cells: Sequence[ReportCell]) -> dict[str, str]:
    """Find the trials of `cells` without files of scores: the reason by key."""
    reasons = {trial.result.key: _find_reason(trial) for cell in cells for trial in cell.trials}
    return {key: reason for key, reason in reasons.items() if reason is not None}


def _find_reason(trial: LoadedTrial) -> str | None:
    scores = trial.result.scores
    if scores is None:
        return "scores are not kept"
    files = [file for file in (scores.logits, scores.labels, scores.weights) if file is not None]
    are_there = all((trial.file.parent / file).exists() for file in files)
    return None if are_there else "files of scores are not there"
