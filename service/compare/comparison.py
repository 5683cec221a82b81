"""Comparison of jobs, where those that differ in their seeds alone count as one method."""

from collections.abc import Sequence

from dlrm.record.intervals import estimate_mean
from service.compare.differences import compare_figure
from service.compare.figures import compute_badness, get_better, list_compared
from service.compare.groups import Candidate, Group, fold_sections, group_by_settings
from service.compare.verdict import judge
from service.job_schema import find_meaning
from service.reports.progress import present_progress
from service.schemas import BriefProgress, ComparedFigure, ComparedJob, ComparedSetting, ComparedValue, Comparison
from service.store.states import JobState


def compare_jobs(candidates: Sequence[Candidate]) -> Comparison:
    """Compare jobs. A figure of a group is the mean over its jobs that have succeeded."""
    groups = group_by_settings(candidates)
    numbers = {member.job.id: number for number, group in enumerate(groups) for member in group.members}
    settings = fold_sections([group.settings for group in groups])
    fields = dict.fromkeys(name for own in settings for name in own)
    values = {name: [own.get(name) for own in settings] for name in fields}
    return Comparison(
        jobs=[
            ComparedJob(
                id=found.job.id,
                name=found.job.name,
                owner=found.job.owner,
                labels=found.labels,
                state=found.job.state,
                seed=found.seed,
                group=numbers[found.job.id],
                progress=BriefProgress.model_validate(present_progress(JobState(found.job.state), found.job.progress)),
            )
            for found in candidates
        ],
        verdict=judge(groups),
        settings=[
            ComparedSetting(field=name, meaning=find_meaning(name), values=own)
            for name, own in values.items()
            if any(value != own[0] for value in own)
        ],
        figures=[
            figure
            for name in list_compared(found.document.metrics for found in candidates)
            if (figure := _compare_figure(name, groups)) is not None
        ],
    )


def _compare_figure(name: str, groups: Sequence[Group]) -> ComparedFigure | None:
    """Compare one figure; None if no job has it."""
    better = get_better(name)
    assert better is not None, "it is compared"
    values = [_estimate(name, group) for group in groups]
    known = [(compute_badness(name, value.mean), number) for number, value in enumerate(values) if value is not None]
    if not known:
        return None
    return ComparedFigure(
        name=name,
        values=values,
        better=better,
        best=min(known)[1] if len(known) > 1 else None,
        differences=[
            compare_figure(name, group, groups[0], len(known) - 1) if number else None
            for number, group in enumerate(groups)
        ],
    )


def _estimate(name: str, group: Group) -> ComparedValue | None:
    """Estimate the mean of a figure over the jobs of a group that have succeeded; None if none of them has it."""
    found = group.list_figures(name)
    if not found:
        return None
    # Of one job, the choice of the evaluation rows is the chance that is known.
    estimate = estimate_mean([value for _, value in found], group.get_error(name))
    return ComparedValue(
        mean=estimate.value, low=estimate.low, high=estimate.high, source=estimate.source, num_jobs=len(found)
    )
