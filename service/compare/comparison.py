"""Comparison of jobs, where those that differ in their seeds alone count as one method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlrm.config import flatten_document
from dlrm.record.intervals import estimate_mean
from service.schemas import ComparedFigure, ComparedJob, ComparedSetting, ComparedValue, Comparison
from service.store.models import Job
from service.store.states import JobState

SEED = "run.seed"
SEED_LABEL = "seed"
"""Label whose value may differ between jobs of one group, as `run.seed` may."""
_NO_SETTINGS = ("name", "labels", "priority", "filled_by_preset")
"""Fields of a document that do not change what is learned, or how fast."""
_BADNESS: dict[str, Callable[[float], float]] = {
    "auc": lambda value: -value,
    "log_loss": lambda value: value,
    "normalized_entropy": lambda value: value,
    "calibration": lambda value: abs(value - 1.0),
    "validation_auc": lambda value: -value,
    "validation_log_loss": lambda value: value,
    "samples_per_second": lambda value: -value,
    "seconds": lambda value: value,
}
"""Compared figures, each with a function of its value: least for the best one."""
_SECONDS = "seconds"
"""Figure of the seconds from the first start of a job to its end, which is not in its metrics."""


@dataclass
class _Group:
    """Jobs with the same settings and different seeds."""

    settings: dict[str, Any]
    jobs: list[Job] = field(default_factory=list[Job])


def compare_jobs(jobs: Sequence[Job]) -> Comparison:
    """Compare jobs, with their documents. A figure of a group is the mean over its jobs that have succeeded."""
    groups = _group_by_settings(jobs)
    numbers = {job.id: number for number, group in enumerate(groups) for job in group.jobs}
    fields = dict.fromkeys(name for group in groups for name in group.settings)
    values = {name: [group.settings.get(name) for group in groups] for name in fields}
    return Comparison(
        jobs=[
            ComparedJob(
                id=job.id,
                name=job.name,
                labels=_get_labels(job),
                state=job.state,
                seed=job.spec["run"]["seed"],
                group=numbers[job.id],
            )
            for job in jobs
        ],
        settings=[
            ComparedSetting(field=name, values=found)
            for name, found in values.items()
            if any(value != found[0] for value in found)
        ],
        figures=[figure for name in _BADNESS if (figure := _compare_figure(name, groups)) is not None],
    )


def _group_by_settings(jobs: Sequence[Job]) -> list[_Group]:
    """Group jobs whose settings and labels are the same but for their seeds; each seed is in a group once."""
    groups: dict[str, _Group] = {}
    for job in jobs:
        settings = {name: value for name, value in job.spec.items() if name not in _NO_SETTINGS}
        flat = dict(flatten_document(settings))
        seed = flat.pop(SEED)
        labels = _get_labels(job)
        same = (sorted(flat.items()), sorted((labels | {SEED_LABEL: ""}).items()))
        number = 0
        while (key := f"{same} {number}") in groups and _has_seed(groups[key], seed, labels.get(SEED_LABEL)):
            # The same seed again says nothing of the chance of seeds.
            number += 1
        groups.setdefault(key, _Group(flat)).jobs.append(job)
    return list(groups.values())


def _has_seed(group: _Group, seed: int, label: str | None) -> bool:
    return any((job.spec["run"]["seed"], _get_labels(job).get(SEED_LABEL)) == (seed, label) for job in group.jobs)


def _compare_figure(name: str, groups: Sequence[_Group]) -> ComparedFigure | None:
    """Compare one figure; None if no job has it."""
    values = [_estimate(name, group) for group in groups]
    known = [(_BADNESS[name](value.mean), number) for number, value in enumerate(values) if value is not None]
    if not known:
        return None
    return ComparedFigure(name=name, values=values, best=min(known)[1] if len(known) > 1 else None)


def _estimate(name: str, group: _Group) -> ComparedValue | None:
    """Estimate the mean of a figure over the jobs of a group that have succeeded; None if none of them has it."""
    found = [
        (value, job)
        for job in group.jobs
        if job.state == JobState.SUCCEEDED and (value := _get_figure(name, job)) is not None
    ]
    if not found:
        return None
    # Of one job, the choice of the evaluation rows is the chance that is known.
    error = found[0][1].metrics.get(f"{name}_standard_error")
    estimate = estimate_mean([value for value, _ in found], error)
    return ComparedValue(
        mean=estimate.value, low=estimate.low, high=estimate.high, source=estimate.source, num_jobs=len(found)
    )


def _get_figure(name: str, job: Job) -> float | None:
    if name != _SECONDS:
        return job.metrics.get(name)
    return (job.finished_at - job.started_at).total_seconds() if job.finished_at and job.started_at else None


def _get_labels(job: Job) -> dict[str, str]:
    return {label.name: label.value for label in job.labels}
