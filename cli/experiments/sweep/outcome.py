"""Results of runs and of jobs that have ended, as lines of the file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cli.experiments.sweep.results import CurvePoint, Environment, KeptScores, TrialOutcome, TrialResult, shorten_paths
from cli.experiments.sweep.trials import Trial
from cli.experiments.trials.run import compute_training_seconds
from dlrm.record import BLEND_SHARE, EndReason


@dataclass(frozen=True)
class RunEnd:
    """End of a trial's run, wherever it ran."""

    is_done: bool
    """Whether the run has succeeded."""
    reason: str
    message: str
    metrics: Mapping[str, float | None]
    num_steps: int | None
    seconds: float
    """Seconds of the run without the preparation of data, as far as that can be told."""
    cpu_seconds: float | None = None
    data_checksum: str | None = None
    """Checksum of the prepared rows; None if it is not known."""
    num_attempts: int = 1
    curve: Iterable[CurvePoint] = ()
    decided: Mapping[str, Any] = field(default_factory=dict[str, Any])
    environment: Environment | None = None
    """Software and hardware of the run; None if they are not known."""


def is_blended(end: RunEnd) -> bool:
    """Whether the metrics are those of a blend, which the scores of the trained model are not."""
    return bool(end.metrics.get(BLEND_SHARE))


def make_result(trial: Trial, end: RunEnd, scores: KeptScores | None) -> TrialResult:
    """Make the line of a trial."""
    num_samples, seconds = end.metrics.get("num_samples"), compute_training_seconds(end.metrics)
    return TrialResult(
        key=trial.key,
        stage=trial.stage,
        method=trial.method,
        settings=dict(trial.settings),
        compared=dict(trial.compared),
        seed=trial.seed,
        fraction=trial.fraction,
        outcome=_name_outcome(end),
        reason=end.reason,
        message=shorten_paths(end.message),
        metrics=dict(end.metrics),
        data_checksum=end.data_checksum,
        num_steps=end.num_steps,
        num_samples=None if num_samples is None else round(num_samples),
        seconds=round(end.seconds, 3),
        training_seconds=None if seconds is None else round(seconds, 3),
        cpu_seconds=end.cpu_seconds,
        num_attempts=end.num_attempts,
        curve=list(end.curve),
        decided=dict(end.decided),
        scores=scores,
        environment=end.environment,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _name_outcome(end: RunEnd) -> TrialOutcome:
    if end.is_done:
        return "done"
    return "diverged" if end.reason == EndReason.DIVERGED else "failed"
