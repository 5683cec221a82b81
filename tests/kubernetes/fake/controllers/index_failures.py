"""Failures of each index by itself, for Jobs with `backoffLimitPerIndex`."""

from collections.abc import Iterable

from tests.kubernetes.fake.controllers import job_policies
from tests.kubernetes.fake.controllers.job_indexes import completion_index, parse_indexes
from tests.kubernetes.fake.controllers.job_pods import is_tracked
from tests.kubernetes.fake.controllers.pod_failures import finished_at, pause_after
from tests.kubernetes.fake.objects import annotations_of
from tests.kubernetes.fake.resources import Json

FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
"""Annotation of a pod: earlier failures of its index that count."""
IGNORED_FAILURE_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
"""Annotation of a pod: earlier failures of its index that a policy ignores. Only there where there are some."""


def is_limited(job: Json) -> bool:
    """Whether a Job limits the failures of each index by itself."""
    return "backoffLimitPerIndex" in job["spec"]


def find_failed_indexes(job: Json, pods: Iterable[Json]) -> set[int]:
    """Return the indexes that have failed: those of the status, and those whose pods fail them now."""
    limit: int = job["spec"]["completions"]
    failed = parse_indexes(job["status"].get("failedIndexes", ""))
    for pod in pods:
        index = completion_index(pod)
        if index is not None and is_tracked(pod) and _fails_index(job, pod):
            failed.add(index)
    return {index for index in failed if index < limit}


def _fails_index(job: Json, pod: Json) -> bool:
    if not job_policies.is_failed(pod, job):
        return False
    judgement = job_policies.judge(job, pod)
    has_reached_limit = _count(pod, FAILURE_COUNT) >= job["spec"]["backoffLimitPerIndex"]
    return judgement.fails_index or (judgement.counts and has_reached_limit)


def find_awaiting(job: Json, pods: Iterable[Json], settled: set[int | None]) -> dict[int, Json]:
    """Return the last failed pod of each index that waits for its replacement, which goes on with its counts.

    settled: indexes that have succeeded, failed or been replaced.
    """
    last: dict[int, Json] = {}
    for pod in pods:
        index = completion_index(pod)
        if not is_tracked(pod) or not job_policies.is_failed(pod, job) or index is None or index in settled:
            continue
        if index < job["spec"]["completions"] and (index not in last or _place(last[index]) <= _place(pod)):
            last[index] = pod
    return last


def _place(pod: Json) -> tuple[int, float]:
    return _num_failures(pod), finished_at(pod)


def remaining_seconds(last: Json | None, now: float) -> float:
    """Return how long the pod of an index may not be replaced yet. last: the one that failed last, if any has."""
    if last is None:
        return 0.0
    return max(0.0, pause_after(_num_failures(last) + 1) - (now - finished_at(last)))


def count_failures(job: Json, last: Json | None) -> dict[str, str]:
    """Return the annotations with which the pod of an index goes on counting its failures."""
    counted, ignored = 0, 0
    if last is not None:
        counts = job_policies.judge(job, last).counts
        counted = _count(last, FAILURE_COUNT) + counts
        ignored = _count(last, IGNORED_FAILURE_COUNT) + (not counts)
    annotations = {FAILURE_COUNT: str(counted)}
    if ignored:
        annotations[IGNORED_FAILURE_COUNT] = str(ignored)
    return annotations


def failure_condition(job: Json, num_failed: int, num_succeeded: int) -> tuple[str, str] | None:
    """Return reason and message with which failed indexes fail the whole Job, None where they do not."""
    spec: Json = job["spec"]
    if "maxFailedIndexes" in spec and num_failed > spec["maxFailedIndexes"]:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return "MaxFailedIndexesExceeded", message
    if num_failed and num_failed + num_succeeded >= spec["completions"]:
        return "FailedIndexes", "Job has failed indexes"
    return None


def _count(pod: Json, name: str) -> int:
    text = annotations_of(pod).get(name, "")
    return int(text) if text.isdigit() else 0


def _num_failures(pod: Json) -> int:
    return _count(pod, FAILURE_COUNT) + _count(pod, IGNORED_FAILURE_COUNT)
