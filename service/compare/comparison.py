"""Comparison of jobs, where those that differ in their seeds alone count as one method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlrm.config import flatten
from dlrm.record.intervals import estimate_mean
from service.schemas import ComparedFigure, ComparedJob, ComparedSetting, ComparedValue, Comparison
from service.store.models import Job, JobDocument
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


@dataclass(frozen=True)
class Candidate:
    """A job to compare, with its document and labels."""

    job: Job
    document: JobDocument
    labels: dict[str, str]

    @property
    def seed(self) -> int:
        return self.document.spec["run"]["seed"]


@dataclass
class _Group:
    """Jobs with the same settings and different seeds."""

    settings: dict[str, Any]
    members: list[Candidate] = field(default_factory=list[Candidate])


def compare_jobs(candidates: Sequence[Candidate]) -> Comparison:
    """Compare jobs. A figure of a group is the mean over its jobs that have succeeded."""
    groups = _group_by_settings(candidates)
    numbers = {member.job.id: number for number, group in enumerate(groups) for member in group.members}
    fields = dict.fromkeys(name for group in groups for name in group.settings)
    values = {name: [group.settings.get(name) for group in groups] for name in fields}
    return Comparison(
        jobs=[
            ComparedJob(
                id=found.job.id,
                name=found.job.name,
                labels=found.labels,
                state=found.job.state,
                seed=found.seed,
                group=numbers[found.job.id],
            )
            for found in candidates
        ],
        settings=[
            ComparedSetting(field=name, values=own)
            for name, own in values.items()
            if any(value != own[0] for value in own)
        ],
        figures=[figure for name in _BADNESS if (figure := _compare_figure(name, groups)) is not None],
    )


def _group_by_settings(candidates: Sequence[Candidate]) -> list[_Group]:
    """Group jobs whose settings and labels are the same but for their seeds; each seed is in a group once."""
    groups: dict[str, _Group] = {}
    for found in candidates:
        settings = {name: value for name, value in found.document.spec.items() if name not in _NO_SETTINGS}
        flat = dict(flatten(settings))
        del flat[SEED]
        same = (sorted(flat.items()), sorted((found.labels | {SEED_LABEL: ""}).items()))
        number = 0
        while (key := f"{same} {number}") in groups and _has_seed(groups[key], found):
            # The same seed again says nothing of the chance of seeds.
            number += 1
        groups.setdefault(key, _Group(flat)).members.append(found)
    return list(groups.values())


def _has_seed(group: _Group, found: Candidate) -> bool:
    seeds = [(member.seed, member.labels.get(SEED_LABEL)) for member in group.members]
    return (found.seed, found.labels.get(SEED_LABEL)) in seeds


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
        (value, member)
        for member in group.members
        if member.job.state == JobState.SUCCEEDED and (value := _get_figure(name, member)) is not None
    ]
    if not found:
        return None
    # Of one job, the choice of the evaluation rows is the chance that is known.
    error = found[0][1].document.metrics.get(f"{name}_standard_error")
    estimate = estimate_mean([value for value, _ in found], error)
    return ComparedValue(
        mean=estimate.value, low=estimate.low, high=estimate.high, source=estimate.source, num_jobs=len(found)
    )


def _get_figure(name: str, found: Candidate) -> float | None:
    if name != _SECONDS:
        return found.document.metrics.get(name)
    start, end = found.job.started_at, found.job.finished_at
    return (end - start).total_seconds() if start and end else None
