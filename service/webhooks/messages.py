"""Bodies of the requests to webhooks."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from service.ids import new_id
from service.store.models import Event, Job
from service.times import now
from service.webhooks.models import Delivery, Webhook


def make_change(webhook: Webhook, event: Event, job: Job, labels: Mapping[str, str]) -> Delivery:
    """Make the delivery of a change of a job's state.

    Without messages, which may quote values of rows: who may see them asks for the job.
    """
    data: dict[str, Any] = {
        "job_id": job.id,
        "name": job.name,
        "owner": job.owner,
        "labels": dict(labels),
        "from_state": event.from_state,
        "state": event.to_state,
        "reason": event.reason,
        "attempt": event.attempt,
        "event_id": str(event.id),
        "path": f"/v1/jobs/{job.id}",
    }
    return _make(webhook, event.id, "job.state", event.time, data)


def make_test(webhook: Webhook) -> Delivery:
    """Make a delivery that says nothing but that requests arrive."""
    return _make(webhook, None, "webhook.test", now(), {"webhook_id": webhook.id})


def _make(webhook: Webhook, event_id: int | None, kind: str, time: datetime, data: dict[str, Any]) -> Delivery:
    body = json.dumps({"type": kind, "timestamp": time.isoformat(), "data": data}, separators=(",", ":"))
    created_at = now()
    return Delivery(
        id=new_id("msg"),
        webhook_id=webhook.id,
        event_id=event_id,
        body=body,
        created_at=created_at,
        next_try_at=created_at,
    )
