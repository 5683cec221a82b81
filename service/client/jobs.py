"""Operations on jobs: they are submitted, found, changed, ended and followed."""

import json
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any

from service.client.base import BaseOperations
from service.client.errors import ServiceError, ServiceUnreachableError
from service.client.messages import Message
from service.client.patience import Patience
from service.schemas import Comparison, DeletedJob, Job, JobAdvice, JobDetails, LabelCount, Page, Plan, ShortDocument

END = "end"
TOO_BUSY = "too-busy"
"""Kind of the refusal of a stream if there are too many."""
MAX_EMPTY_STREAMS = 2
"""Streams one after the other without a message, after which something on the way is said to hold them back."""


class StreamUnusableError(Exception):
    """Error raised if streams are refused, or come without a message, as through a proxy that collects answers."""


class JobOperations(BaseOperations):
    """Operations on jobs."""

    async def submit(self, document: Mapping[str, Any], idempotency_key: str | None = None) -> JobDetails:
        """Submit a job document, and return the new job.

        idempotency_key: two calls with the same key and document create only one job; a random key if omitted.
        """
        key = idempotency_key or uuid.uuid4().hex
        return await self._transport.post(JobDetails, "/v1/jobs", document, idempotency_key=key)

    async def plan(self, document: Mapping[str, Any]) -> Plan:
        """Plan the job of a document without submitting it, which may take seconds."""
        return await self._transport.post(Plan, "/v1/plans", document)

    def jobs(
        self,
        *,
        state: str | Sequence[str] | None = None,
        label: str | Sequence[str] | None = None,
        name: str | None = None,
        owner: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        finished_after: datetime | None = None,
        finished_before: datetime | None = None,
        search: str | None = None,
    ) -> AsyncGenerator[Job]:
        """Yield all jobs that match the filters, newest first.

        state: one or several; one must match. label: written `key:value`, one or several; all must match.
        created_after, created_before: earliest time of submission, and the one before which it was. finished_after,
        finished_before: the same of its end. search: part of the name, the owner, the id or the value of a label.
        """
        filters = {"state": state, "label": label, "name": name, "owner": owner, "q": search}
        created = {"created_after": created_after, "created_before": created_before}
        finished = {"finished_after": finished_after, "finished_before": finished_before}
        return self._list_items("/v1/jobs", Page[Job], **filters, **created, **finished)

    def labels(self, name: str | None = None) -> AsyncGenerator[LabelCount]:
        """Yield the labels of jobs, by name and value, each with its number of jobs.

        name: only the values of this label; all labels if omitted.
        """
        return self._list_items("/v1/labels", Page[LabelCount], name=name)

    async def job(self, job_id: str) -> JobDetails:
        return await self._transport.get(JobDetails, f"/v1/jobs/{job_id}")

    async def advice(self, job_id: str) -> JobAdvice:
        """Return what to change in a job, with the figures behind it."""
        return await self._transport.get(JobAdvice, f"/v1/jobs/{job_id}/advice")

    async def document(self, job_id: str) -> ShortDocument:
        """Return the shortest document of a job, which makes the same job again, and what differs from the defaults."""
        return await self._transport.get(ShortDocument, f"/v1/jobs/{job_id}/document")

    async def edit(
        self, job_id: str, *, labels: Mapping[str, str | None] | None = None, priority: int | None = None
    ) -> JobDetails:
        """Change labels of a job and, while it has not ended, its priority.

        labels: values by name; None removes a label, and others stay. priority: left as it is if omitted.
        """
        return await self._transport.patch(JobDetails, f"/v1/jobs/{job_id}", {"labels": labels, "priority": priority})

    async def compare(self, job_ids: Sequence[str]) -> Comparison:
        """Compare 2 to 20 jobs: differing settings and final figures; those that differ in seeds are one group."""
        return await self._transport.get(Comparison, "/v1/compare", {"ids": ",".join(job_ids)})

    async def cancel(self, job_id: str) -> JobDetails:
        """Ask a job to stop. This returns at once; the job becomes CANCELLED soon after."""
        return await self._transport.post(JobDetails, f"/v1/jobs/{job_id}/cancel")

    async def pause(self, job_id: str) -> JobDetails:
        """Ask a running job to save a checkpoint and stop.

        This returns at once; the job becomes PAUSED soon after, and stays so until `resume`.
        """
        return await self._transport.post(JobDetails, f"/v1/jobs/{job_id}/pause")

    async def resume(self, job_id: str) -> JobDetails:
        """Queue a paused job again; it continues from its checkpoint once the scheduler starts it."""
        return await self._transport.post(JobDetails, f"/v1/jobs/{job_id}/resume")

    async def hold(self, job_id: str) -> JobDetails:
        """Keep a queued job from starting, until `release`."""
        return await self._transport.post(JobDetails, f"/v1/jobs/{job_id}/hold")

    async def release(self, job_id: str) -> JobDetails:
        """Let a held job start when its turn comes."""
        return await self._transport.post(JobDetails, f"/v1/jobs/{job_id}/release")

    async def restart(self, job_id: str, idempotency_key: str | None = None) -> JobDetails:
        """Create a job with the document of a job that has ended, and return the new one.

        idempotency_key: two calls with the same key and id create only one job; a random key if omitted.
        """
        key = idempotency_key or uuid.uuid4().hex
        return await self._transport.post(JobDetails, f"/v1/jobs/{job_id}/restart", idempotency_key=key)

    async def delete(self, job_id: str) -> DeletedJob:
        """Delete a job that has ended, with its model, checkpoints, logs and metrics.

        From then on there is no such job; its files are gone soon after, except for those that the service does not
        see: the answer says where they stay.
        """
        return await self._transport.delete(DeletedJob, f"/v1/jobs/{job_id}")

    async def stream(
        self, job_id: str, *, last_id: str | None = None, events: bool = True, patience: Patience | None = None
    ) -> AsyncGenerator[Message]:
        """Yield the messages of a job's stream, until it has ended; each event once, however often it is cut.

        last_id: id of an event after which to begin. events: whether there are messages of events, too. patience: with
        a service that is away; ten minutes if omitted. Raises ServiceAwayError, and StreamUnusableError if something
        on the way holds streams back.
        """
        patience = patience or Patience()
        params = {"events": None if events else "false"}
        name, num_empty = "", 0
        while name != END:
            if num_empty == MAX_EMPTY_STREAMS:
                raise StreamUnusableError
            num_empty += 1
            request = partial(self._open_stream, job_id, params, last_id)
            # Where it is cut, or the service stops, it goes on after the last message.
            async with aclosing(await patience.repeat(request, self._transport.sleep)) as messages:
                try:
                    async for message in messages:
                        num_empty, name, last_id = 0, message.name, message.last_id or last_id
                        yield message
                except ServiceUnreachableError as error:
                    if num_empty and error.is_silence:
                        # The service sends the job at once.
                        raise StreamUnusableError from error

    async def _open_stream(
        self, job_id: str, params: Mapping[str, Any], last_id: str | None
    ) -> AsyncGenerator[Message]:
        """Open a stream. Raises StreamUnusableError if it is refused or held back, though the service answers."""
        try:
            return await self._transport.open_stream(f"/v1/jobs/{job_id}/stream", params, last_id)
        except ServiceError as error:
            if error.problem.slug == TOO_BUSY:
                raise StreamUnusableError from error
            raise
        except ServiceUnreachableError as error:
            if not error.is_silence:
                raise
            await self.job(job_id)
            raise StreamUnusableError from error

    async def follow(
        self, job_id: str, poll_seconds: float = 1.0, patience: Patience | None = None
    ) -> AsyncGenerator[JobDetails]:
        """Yield the job now, and again after each change, until it has ended.

        poll_seconds: seconds between two requests, if the service is an older one or something on the way holds its
        streams back. patience: with a service that is away, at every request; if omitted, ten minutes at every request
        but the first one. Raises ServiceAwayError if it stays away for longer.
        """
        read, sleep = partial(self.job, job_id), self._transport.sleep
        job = await (patience.repeat(read, sleep) if patience else read())
        yield job
        if job.has_ended:
            return
        patience = patience or Patience()
        fields: dict[str, Any] = {}
        try:
            async with aclosing(self.stream(job_id, events=False, patience=patience)) as messages:
                async for message in messages:
                    if message.name == "job":
                        # Each stream begins with all fields.
                        fields |= json.loads(message.data)
                        previous, job = job, JobDetails.model_validate(fields)
                        if job != previous:
                            yield job
        except (ServiceError, StreamUnusableError):
            while not job.has_ended:
                await sleep(poll_seconds)
                previous, job = job, await patience.repeat(read, sleep)
                if job != previous:
                    yield job
