"""The client: one method for each thing the service does."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, TypeAdapter

from service.client.connection import find_connection
from service.client.models import (
    ApiKey,
    Attempt,
    AttemptStart,
    Capacity,
    Checkpoint,
    EvaluationMetric,
    Event,
    Job,
    JobDetails,
    LogPart,
    Metric,
    MetricPage,
    Page,
)
from service.client.transport import Transport

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")

METRICS_PER_PAGE = 10_000


class Client:
    """Talks to one service. Every method raises ServiceError or ServiceUnreachableError."""

    def __init__(self, url: str | None = None, api_key: str | None = None, timeout_seconds: float = 30.0) -> None:
        """url, api_key: found as `service.client.connection` says where they are left out.

        Raises ServiceUnknownError.
        """
        connection = find_connection(url, api_key)
        self.url = connection.url
        self._transport = Transport(connection, timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def submit(self, document: Mapping[str, Any], idempotency_key: str | None = None) -> Job:
        """Submit a job document; sending it twice under one key makes one job."""
        key = idempotency_key or uuid.uuid4().hex
        return Job.model_validate_json(self._transport.post("/v1/jobs", document, idempotency_key=key))

    def jobs(self, *, state: str | None = None, label: str | None = None, name: str | None = None) -> Iterator[Job]:
        """All jobs that match, newest first. label: written `key:value`."""
        return self._items("/v1/jobs", TypeAdapter(Page[Job]), state=state, label=label, name=name)

    def job(self, job_id: str) -> JobDetails:
        return self._get(JobDetails, f"/v1/jobs/{job_id}")

    def cancel(self, job_id: str) -> Job:
        """Ask a job to stop; it ends as CANCELLED soon after."""
        return Job.model_validate_json(self._transport.post(f"/v1/jobs/{job_id}/cancel"))

    def pause(self, job_id: str) -> Job:
        """Ask a running job to stop after a checkpoint; it is PAUSED soon after, until it is resumed."""
        return Job.model_validate_json(self._transport.post(f"/v1/jobs/{job_id}/pause"))

    def resume(self, job_id: str) -> Job:
        """Let a paused job go on from its checkpoint when its turn has come."""
        return Job.model_validate_json(self._transport.post(f"/v1/jobs/{job_id}/resume"))

    def events(self, job_id: str) -> Iterator[Event]:
        """What has happened to a job, oldest first."""
        return self._items(f"/v1/jobs/{job_id}/events", TypeAdapter(Page[Event]))

    def attempts(self, job_id: str) -> Iterator[Attempt]:
        return self._items(f"/v1/jobs/{job_id}/attempts", TypeAdapter(Page[Attempt]))

    def checkpoints(self, job_id: str) -> Iterator[Checkpoint]:
        """Complete checkpoints on disk, newest first."""
        return self._items(f"/v1/jobs/{job_id}/checkpoints", TypeAdapter(Page[Checkpoint]))

    def metrics(
        self,
        job_id: str,
        *,
        kind: Literal["step", "evaluation"] | None = None,
        attempt: int | None = None,
        max_points: int | None = None,
    ) -> Iterator[Metric]:
        """Steps and evaluations, oldest first, each once: what a later attempt has made again is left out.

        attempt: all that this one has said. max_points: thins them evenly to at most so many.
        """
        query = {"kind": kind, "attempt": attempt, "max_points": max_points, "limit": METRICS_PER_PAGE}
        items: list[Metric] = []
        cursor: str | None = None
        while True:
            page = self._get(MetricPage, f"/v1/jobs/{job_id}/metrics", **query, cursor=cursor)
            items += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        # An attempt may have begun between two pages.
        yield from (item for item in items if attempt is not None or _stands(item, page.starts))

    def logs(
        self,
        job_id: str,
        *,
        attempt: int | None = None,
        rank: int | Literal["launch"] = 0,
        offset: int | None = None,
        tail_lines: int | None = None,
    ) -> LogPart:
        """A part of one log, from byte `offset` on, or the last `tail_lines` lines."""
        return self._get(
            LogPart,
            f"/v1/jobs/{job_id}/logs",
            attempt=attempt,
            rank=rank,
            offset=offset,
            tail_lines=tail_lines,
        )

    def follow(self, job_id: str, poll_seconds: float = 1.0) -> Iterator[JobDetails]:
        """The job now, and again each time something about it has changed, until it has ended."""
        seen = self.job(job_id)
        yield seen
        while not seen.has_ended:
            time.sleep(poll_seconds)
            job = self.job(job_id)
            if job != seen:
                seen = job
                yield seen

    def capacity(self) -> Capacity:
        return self._get(Capacity, "/v1/capacity")

    def keys(self) -> Iterator[ApiKey]:
        return self._items("/v1/keys", TypeAdapter(Page[ApiKey]))

    def create_key(self, name: str, role: Literal["viewer", "submitter", "admin"]) -> ApiKey:
        """Make an API key; its `key` is shown this once."""
        return ApiKey.model_validate_json(self._transport.post("/v1/keys", {"name": name, "role": role}))

    def delete_key(self, key_id: str) -> None:
        self._transport.delete(f"/v1/keys/{key_id}")

    def _get(self, model: type[Model], path: str, **params: Any) -> Model:
        return model.model_validate_json(self._transport.get(path, params))

    def _items(self, path: str, page_type: TypeAdapter[Page[Item]], **params: Any) -> Iterator[Item]:
        """Every item of a list, page by page, as they are asked for."""
        cursor: str | None = None
        while True:
            page = page_type.validate_json(self._transport.get(path, {**params, "cursor": cursor}))
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return


def _stands(metric: Metric, starts: Sequence[AttemptStart]) -> bool:
    is_evaluation = isinstance(metric, EvaluationMetric)
    return all(
        metric.step <= (start.evaluated_step if is_evaluation else start.step)
        for start in starts
        if start.attempt > metric.attempt
    )
