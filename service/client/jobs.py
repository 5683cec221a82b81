"""Operations on jobs: they are submitted, found, changed and ended."""

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any

from service.client.base import BaseOperations
from service.schemas import Comparison, DeletedJob, Job, JobDetails, LabelCount, Page, Plan


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
