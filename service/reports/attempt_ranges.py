"""Ranges of reports that count: everything after the start of a later attempt is void."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from service.http.paging import MAX_SERIAL

MetricKind = Literal["step", "evaluation"]
METRIC_KINDS: tuple[MetricKind, ...] = ("step", "evaluation")
"""Kinds of reports that are metrics."""


class StartedAttempt(NamedTuple):
    """Number of an attempt, and the last step and evaluation before it that count; None until it trains."""

    number: int
    start_step: int | None
    evaluated_step: int | None


@dataclass(frozen=True)
class AttemptRange:
    """Reports of one attempt up to a step; those after it are void."""

    attempt: int
    last_step: int = MAX_SERIAL


def list_valid_ranges(attempts: Sequence[StartedAttempt], kind: MetricKind) -> list[AttemptRange]:
    """List the ranges of valid reports of all attempts, in the order of their steps.

    attempts: all attempts of a job, in their order.
    """
    ranges: list[AttemptRange] = []
    last_step = MAX_SERIAL
    for attempt in reversed(attempts):
        start = attempt.start_step if kind == "step" else attempt.evaluated_step
        if start is None:
            ranges.append(AttemptRange(attempt.number, last_step))
            continue
        if start < last_step:
            ranges.append(AttemptRange(attempt.number, last_step))
        last_step = min(last_step, start)
    return ranges[::-1]
