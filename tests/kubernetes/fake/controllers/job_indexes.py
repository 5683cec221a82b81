"""Sets of completion indexes, as Jobs write them: "0,2-4"."""

from collections.abc import Iterable

from tests.kubernetes.fake.objects import annotations_of
from tests.kubernetes.fake.resources import Json

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of a pod of an Indexed Job."""


def parse_indexes(text: str) -> set[int]:
    """Return the indexes of a text such as "0,2-4"."""
    indexes: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes.update(range(int(first), int(last or first) + 1))
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    """Return the text of indexes."""
    intervals: list[list[int]] = []
    for index in sorted(indexes):
        if intervals and index == intervals[-1][1] + 1:
            intervals[-1][1] = index
        else:
            intervals.append([index, index])
    return ",".join(_format_interval(first, last) for first, last in intervals)


def _format_interval(first: int, last: int) -> str:
    if first == last:
        return str(first)
    # Two neighbours are listed, as the controller does.
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def completion_index(pod: Json) -> int | None:
    """Return the index of a pod."""
    text = annotations_of(pod).get(COMPLETION_INDEX, "")
    return int(text) if text.isdigit() else None


def is_indexed(job: Json) -> bool:
    """Whether the pods of a Job have indexes."""
    return job["spec"]["completionMode"] == "Indexed"
