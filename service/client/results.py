"""Operations that read what jobs report and leave: events, numbers, logs and files."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal

from service.client.base import BaseOperations
from service.schemas import (
    Artifact,
    Attempt,
    AttemptStart,
    Checkpoint,
    Curves,
    EvaluationMetric,
    Event,
    LogMatch,
    LogMatches,
    LogPart,
    Metric,
    MetricPage,
    Page,
)

METRICS_PER_PAGE = 10_000


class ResultOperations(BaseOperations):
    """Operations that read what a job reports and leaves."""

    def events(self, job_id: str) -> AsyncGenerator[Event]:
        """Yield the events of a job, oldest first."""
        return self._list_items(f"/v1/jobs/{job_id}/events", Page[Event])

    def attempts(self, job_id: str) -> AsyncGenerator[Attempt]:
        return self._list_items(f"/v1/jobs/{job_id}/attempts", Page[Attempt])

    def checkpoints(self, job_id: str) -> AsyncGenerator[Checkpoint]:
        """Yield the complete checkpoints of a job on the disk of the service, newest first."""
        return self._list_items(f"/v1/jobs/{job_id}/checkpoints", Page[Checkpoint])

    async def metrics(
        self, job_id: str, *, kind: Literal["step", "evaluation"] | None = None, attempt: int | None = None
    ) -> AsyncGenerator[Metric]:
        """Yield training steps and evaluations, oldest first, each once.

        Steps and evaluations that a later attempt has repeated are omitted.

        kind: only steps, or only evaluations. attempt: yield everything that this attempt reported, also what a later
        attempt has repeated. A service whose retention has removed the steps of a job has its `curves` alone.
        """
        query = {"kind": kind, "attempt": attempt, "limit": METRICS_PER_PAGE}
        pages = [page async for page in self._list_pages(f"/v1/jobs/{job_id}/metrics", MetricPage, **query)]
        # The starts on the last page decide, because another attempt may have begun after the first page.
        for metric in (item for page in pages for item in page.items):
            if attempt is not None or _is_valid(metric, pages[-1].starts):
                yield metric

    async def curves(
        self,
        job_id: str,
        names: Sequence[str] = ("loss", "auc"),
        *,
        resolution: int | None = None,
        since: int | None = None,
        until: int | None = None,
        attempt: int | None = None,
    ) -> Curves:
        """Return curves of a job, each with the minimum, maximum, mean and last value of its points.

        names: numbers of steps and evaluations, such as `samples_per_second`, or `gsnr` for all layers. resolution:
        largest number of points of an attempt; 500 if omitted. since: step after which points must end, to append to
        an earlier answer. until: step up to which points begin, so that the steps between have as many points as the
        resolution allows. attempt: everything of one attempt, also what a later one has repeated.
        """
        steps = {"since": since, "until": until}
        query = {"names": ",".join(names), "resolution": resolution, **steps, "attempt": attempt}
        return await self._transport.get(Curves, f"/v1/jobs/{job_id}/curves", query)

    async def logs(
        self,
        job_id: str,
        *,
        attempt: int | None = None,
        rank: int | Literal["launch"] = 0,
        node: int | None = None,
        offset: int | None = None,
        tail_lines: int | None = None,
    ) -> LogPart:
        """Return a part of one log: from byte `offset` on, or the last `tail_lines` lines.

        attempt: number of the attempt, counted from 1; the last one if omitted. rank: a rank, or "launch" for the
        launch process, which starts the ranks. node: machine of a launch process; 0 if omitted.
        """
        query = {"attempt": attempt, "rank": rank, "node": node, "offset": offset, "tail_lines": tail_lines}
        return await self._transport.get(LogPart, f"/v1/jobs/{job_id}/logs", query)

    async def search_logs(
        self,
        job_id: str,
        text: str,
        *,
        attempt: int | None = None,
        rank: int | Literal["launch"] = 0,
        node: int | None = None,
    ) -> AsyncGenerator[LogMatch]:
        """Yield the lines of one log that contain a text, as far as it is written; the case does not matter.

        attempt, rank, node: as in `logs`.
        """
        query: dict[str, Any] = {"q": text, "attempt": attempt, "rank": rank, "node": node, "offset": 0}
        while True:
            found = await self._transport.get(LogMatches, f"/v1/jobs/{job_id}/logs/matches", query)
            for match in found.items:
                yield match
            if found.complete or found.next_offset <= query["offset"]:
                return
            query |= {"attempt": found.attempt, "offset": found.next_offset}

    def artifacts(self, job_id: str) -> AsyncGenerator[Artifact]:
        """Yield what a job has left: its model, complete checkpoints, logs, profiles, scores, outcomes and document."""
        return self._list_items(f"/v1/jobs/{job_id}/artifacts", Page[Artifact])


def _is_valid(metric: Metric, starts: Sequence[AttemptStart]) -> bool:
    """Whether no later attempt has repeated a metric. starts: of all attempts."""
    is_evaluation = isinstance(metric, EvaluationMetric)
    return all(
        metric.step <= (start.evaluated_step if is_evaluation else start.step)
        for start in starts
        if start.attempt > metric.attempt
    )
