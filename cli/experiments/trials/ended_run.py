"""Result of a trial from its run: the evaluation curve, scores copied from the run, software and hardware."""

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from cli.experiments.trials.results import CurvePoint, Environment, KeptScores, TrialNames, TrialResult
from cli.local.errors import BadInputError
from cli.local.spool import read_reports
from dlrm.record import (
    BLEND_SHARE,
    RECALIBRATION_FIGURES,
    EndReason,
    EvaluationReport,
    RunDirectory,
    ScoresRecord,
    StartReport,
    StepReport,
    sync_directory,
)
from hostinfo.limits import count_cores, get_memory_bytes, query_gpus, read_processor_name

DISTRIBUTIONS = {"dlrm": "dlrm-service", "torch": "torch", "numpy": "numpy"}
"""Distributions whose versions are recorded, by name in the results."""
SCORES_DIRECTORY = "scores"
"""Name of the directory of the scores, beside the results."""
CHECKSUM_LETTERS = 12
"""Letters of the checksum in the names of files that trials on the same rows share."""


class KnownStep(NamedTuple):
    """Training step of a curve of evaluations: samples consumed up to it, and its noise scale."""

    step: int
    num_samples: int
    noise_scale: float | None


def make_result(
    trial: TrialNames,
    metrics: Mapping[str, float | None],
    seconds: float,
    *,
    is_done: bool,
    reason: str,
    message: str = "",
    **figures: Any,
) -> TrialResult:
    """Make the line of a trial.

    seconds: duration of the run without the preparation of data, if that is known. is_done: whether the run has
    succeeded. figures: other fields of the line, by name.
    """
    num_samples, training_seconds = metrics.get("num_samples"), compute_training_seconds(metrics)
    failure = "diverged" if reason == EndReason.DIVERGED else "failed"
    return TrialResult(
        key=trial.key,
        **trial.list_names(),
        outcome="done" if is_done else failure,
        reason=reason,
        message=message,
        metrics=dict(metrics),
        num_samples=None if num_samples is None else round(num_samples),
        seconds=round(seconds, 3),
        training_seconds=None if training_seconds is None else round(training_seconds, 3),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        **figures,
    )


def compute_training_seconds(metrics: Mapping[str, float | None]) -> float | None:
    """Compute the seconds of all steps of a run over all its attempts; None if its metrics lack them."""
    num_samples, speed = metrics.get("num_samples"), metrics.get("samples_per_second")
    return num_samples / speed if num_samples and speed else None


def read_curve(directory: RunDirectory, num_attempts: int) -> list[CurvePoint]:
    """Read the evaluations of a run; what a later attempt has repeated counts once."""
    steps: list[KnownStep] = []
    evaluations: list[EvaluationReport] = []
    for number in range(1, num_attempts + 1):
        for report in read_reports(directory.attempt(number).spool_file(0, "metrics")):
            if isinstance(report, StartReport):
                steps = [step for step in steps if step.step <= report.step]
                evaluations = [known for known in evaluations if known.step <= report.evaluated_step]
            elif isinstance(report, StepReport):
                steps.append(KnownStep(report.step, report.num_samples, report.noise_scale))
            elif isinstance(report, EvaluationReport):
                evaluations.append(report)
    return make_curve(steps, evaluations)


def make_curve(steps: Sequence[KnownStep], evaluations: Sequence[EvaluationReport]) -> list[CurvePoint]:
    """Return the points of a curve, each with the samples and the noise scale of the last step reported before it."""
    points: list[CurvePoint] = []
    for evaluation in evaluations:
        before = [step for step in steps if step.step <= evaluation.step]
        last = max(before, key=lambda step: step.step) if before else None
        measured = evaluation.model_dump(include={*CurvePoint.model_fields} - {"num_samples", "noise_scale"})
        # A long run reports only some of its steps.
        num_samples = last and round(last.num_samples * evaluation.step / last.step)
        points.append(CurvePoint(**measured, num_samples=num_samples, noise_scale=last and last.noise_scale))
    return points


def copy_scores(key: str, run: RunDirectory, metrics: Mapping[str, float | None], output: Path) -> KeptScores | None:
    """Copy the scores of a run that has succeeded to the directory `output` of its sweep.

    None if the run has kept none, or if its metrics belong to a blend or a recalibrated model: the scores are the
    trained model's.
    key: names the file. Raises BadInputError if they cannot be written.
    """
    is_refined = metrics.get(BLEND_SHARE) or not metrics.keys().isdisjoint(RECALIBRATION_FIGURES)
    record = None if is_refined else ScoresRecord.read(run.scores.record)
    if record is None:
        return None
    rows = f"{SCORES_DIRECTORY}/rows-{record.checksum[:CHECKSUM_LETTERS]}"
    kept = KeptScores(
        logits=f"{SCORES_DIRECTORY}/{key}.npy",
        labels=f"{rows}.labels.npy",
        weights=f"{rows}.weights.npy" if record.is_weighted else None,
        checksum=record.checksum,
        num_rows=record.num_rows,
    )
    try:
        (output / SCORES_DIRECTORY).mkdir(exist_ok=True)
        _copy(run.scores.logits(record.step), output / kept.logits)
        # The same for all trials with this checksum.
        if not (output / kept.labels).exists():
            _copy(run.scores.labels, output / kept.labels)
        if kept.weights is not None and not (output / kept.weights).exists():
            _copy(run.scores.weights, output / kept.weights)
        sync_directory(output / SCORES_DIRECTORY)
    except FileNotFoundError:
        # The run has lost them, and said so.
        return None
    except OSError as error:
        raise BadInputError(f"{output / SCORES_DIRECTORY}: {error.strerror}") from None
    return kept


def _copy(source: Path, target: Path) -> None:
    """Copy a file so that it is there whole or not at all, also after a crash."""
    part = target.with_suffix(".part")
    try:
        with source.open("rb") as read, part.open("wb") as written:
            shutil.copyfileobj(read, written)
            written.flush()
            os.fsync(written.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@cache
def describe_environment() -> Environment:
    """Describe this machine, within the limits of this process."""
    versions = {"python": platform.python_version()}
    for name, distribution in DISTRIBUTIONS.items():
        try:
            versions[name] = version(distribution)
        except PackageNotFoundError:
            continue
    return Environment(
        versions=versions,
        processor=read_processor_name(),
        num_cores=count_cores(),
        memory_bytes=get_memory_bytes(),
        gpu=", ".join(sorted({*query_gpus("name")})) or None,
    )
