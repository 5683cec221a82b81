"""The client: one method for each thing the service does."""

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, TypeAdapter

from service.client.connection import find_connection
from service.client.models import (
    ApiKey,
    Attempt,
    Capacity,
    Event,
    Job,
    JobDetails,
    LogPart,
    Metric,
    Page,
)
from service.client.transport import Transport

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")


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

    def events(self, job_id: str) -> Iterator[Event]:
        """What has happened to a job, oldest first."""
        return self._items(f"/v1/jobs/{job_id}/events", TypeAdapter(Page[Event]))

    def attempts(self, job_id: str) -> Iterator[Attempt]:
        return self._items(f"/v1/jobs/{job_id}/attempts", TypeAdapter(Page[Attempt]))

    def metrics(
        self,
        job_id: str,
        *,
        kind: Literal["step", "evaluation"] | None = None,
        attempt: int | None = None,
        max_points: int | None = None,
    ) -> Iterator[Metric]:
        """Steps and evaluations, oldest first. max_points: thins them evenly to at most so many."""
        page_type: TypeAdapter[Page[Metric]] = TypeAdapter(Page[Metric])
        return self._items(
            f"/v1/jobs/{job_id}/metrics", page_type, kind=kind, attempt=attempt, max_points=max_points, limit=10_000
        )

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
