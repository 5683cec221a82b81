"""Operations on what a service has besides jobs: keys, schedules, webhooks, its audit log and its capacity."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any

from service.client.base import BaseOperations
from service.schemas import (
    ApiKey,
    AuditEvent,
    Capacity,
    LoginLink,
    Me,
    Page,
    RetentionPreview,
    RoleName,
    Schedule,
    Webhook,
)


class AdministrationOperations(BaseOperations):
    """Operations on what a service has besides jobs."""

    async def capacity(self) -> Capacity:
        return await self._transport.get(Capacity, "/v1/capacity")

    async def me(self) -> Me:
        """Return the key, owner and role of this client."""
        return await self._transport.get(Me, "/v1/me")

    def keys(self) -> AsyncGenerator[ApiKey]:
        return self._list_items("/v1/keys", Page[ApiKey])

    async def create_key(
        self, name: str, role: RoleName, *, owner: str | None = None, expires_in_days: int | None = None
    ) -> ApiKey:
        """Create an API key. Only this answer contains the secret, in `key`.

        owner: the name of the key if omitted. expires_in_days: the key never expires if omitted.
        """
        body = {"name": name, "role": role, "owner": owner, "expires_in_days": expires_in_days}
        return await self._transport.post(ApiKey, "/v1/keys", body)

    async def revoke_key(self, key_id: str) -> None:
        """Revoke an API key, which ends its browser sessions too."""
        await self._transport.remove(f"/v1/keys/{key_id}")

    async def create_login_link(
        self, role: RoleName | None = None, *, owner: str | None = None, minutes: int = 10
    ) -> LoginLink:
        """Create a link that signs one browser in, within so many minutes.

        role, owner: the role and owner of the client's key if omitted.
        """
        body = {"role": role, "owner": owner, "minutes": minutes}
        return await self._transport.post(LoginLink, "/v1/session/links", body)

    def schedules(self) -> AsyncGenerator[Schedule]:
        """Yield the schedules by name: an admin sees all, others see the schedules of their owner."""
        return self._list_items("/v1/schedules", Page[Schedule])

    async def schedule(self, schedule_id: str) -> Schedule:
        return await self._transport.get(Schedule, f"/v1/schedules/{schedule_id}")

    async def create_schedule(
        self,
        name: str,
        cron: str,
        document: Mapping[str, Any],
        *,
        time_zone: str = "UTC",
        previous_job_id: str | None = None,
    ) -> Schedule:
        """Make a schedule, which submits `document` at the times of a cron expression.

        previous_job_id: job that `{previous_job}` in the document stands for, until one of the schedule has succeeded.
        """
        body = {"name": name, "cron": cron, "time_zone": time_zone, "document": document}
        return await self._transport.post(Schedule, "/v1/schedules", {**body, "previous_job_id": previous_job_id})

    async def change_schedule(self, schedule_id: str, **changes: Any) -> Schedule:
        """Change `cron`, `time_zone`, `document`, `is_paused` or `previous_job_id` of a schedule."""
        return await self._transport.patch(Schedule, f"/v1/schedules/{schedule_id}", changes)

    async def run_schedule(self, schedule_id: str) -> Schedule:
        """Make a schedule due at once; `last_result` says soon what became of it."""
        return await self._transport.post(Schedule, f"/v1/schedules/{schedule_id}/run")

    async def delete_schedule(self, schedule_id: str) -> None:
        """Remove a schedule. Its jobs stay."""
        await self._transport.remove(f"/v1/schedules/{schedule_id}")

    def webhooks(self) -> AsyncGenerator[Webhook]:
        """Yield the webhooks, oldest first: all for an admin, else those for jobs of the own owner."""
        return self._list_items("/v1/webhooks", Page[Webhook])

    async def create_webhook(
        self,
        url: str,
        *,
        states: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        owner: str | None = None,
    ) -> Webhook:
        """Make a webhook. Only this answer contains the secret of its signatures, in `secret`.

        states: those whose beginning is sent; the ends of a job if omitted. labels: labels that a job must all have.
        owner: owner of the jobs, for an admin; `*` for all.
        """
        body = {"url": url, "states": states, "labels": labels, "owner": owner}
        known = {name: value for name, value in body.items() if value is not None}
        return await self._transport.post(Webhook, "/v1/webhooks", known)

    async def delete_webhook(self, webhook_id: str) -> None:
        await self._transport.remove(f"/v1/webhooks/{webhook_id}")

    async def test_webhook(self, webhook_id: str) -> Webhook:
        """Have a test sent; `last_result` of the webhook has the answer soon after."""
        return await self._transport.post(Webhook, f"/v1/webhooks/{webhook_id}/test")

    def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncGenerator[AuditEvent]:
        """Yield the rows of the audit log that match the filters, newest first.

        actor: owner of the key that acted. target: id or name of what was changed. since, until: times with a zone;
        rows at `until` are left out.
        """
        filters = {"actor": actor, "action": action, "target": target, "since": since, "until": until}
        return self._list_items("/v1/audit", Page[AuditEvent], **filters)

    async def retention(
        self, *, days: float | None = None, jobs_per_owner: int | None = None, run_bytes: int | None = None
    ) -> RetentionPreview:
        """Return what retention would remove now, by these rules; by the service's own if all are omitted."""
        rules = {"days": days, "jobs_per_owner": jobs_per_owner, "run_bytes": run_bytes}
        return await self._transport.get(RetentionPreview, "/v1/retention", rules)
