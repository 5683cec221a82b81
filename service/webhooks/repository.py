"""SQL statements on webhooks and their deliveries."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from service.store.models import Event, Job
from service.store.quotas import EVERYBODY
from service.webhooks.models import Delivery, Webhook


class WebhookRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, webhook: Webhook) -> None:
        self._session.add(webhook)
        self._session.flush()

    def get(self, webhook_id: str) -> Webhook | None:
        return self._session.get(Webhook, webhook_id)

    def list_visible(self, owner: str | None) -> list[Webhook]:
        """List webhooks, oldest first. owner: the only owner whose webhooks are listed; None lists all."""
        query = select(Webhook).order_by(Webhook.id)
        return list(self._session.scalars(query if owner is None else query.where(Webhook.owner == owner)))

    def list_active(self) -> list[Webhook]:
        return list(self._session.scalars(select(Webhook).where(Webhook.stopped_because.is_(None))))

    def count(self, owner: str) -> int:
        return self._session.scalar(select(func.count()).where(Webhook.owner == owner)) or 0

    def update(self, webhook_id: str, **values: Any) -> None:
        self._session.execute(update(Webhook).where(Webhook.id == webhook_id).values(values))

    def stop(self, webhook_id: str, reason: str) -> None:
        """Send nothing to a webhook any more."""
        self.update(webhook_id, stopped_because=reason)
        self._session.execute(delete(Delivery).where(Delivery.webhook_id == webhook_id))

    def remove(self, webhook_id: str) -> None:
        """Remove a webhook, with what is still to be delivered to it."""
        self._session.execute(delete(Webhook).where(Webhook.id == webhook_id))

    def list_changes(self, webhook: Webhook, until: int, limit: int) -> list[tuple[Event, Job]]:
        """List at most `limit` changes of state that a webhook reports, of events after its last one up to `until`.

        Its labels are left to the caller.
        """
        query = (
            select(Event, Job)
            .join(Job, Job.id == Event.job_id)
            .where(Event.id > webhook.last_event_id, Event.id <= until, Event.kind == "state")
            .where(Event.to_state.in_(webhook.states))
        )
        if webhook.owner != EVERYBODY:
            query = query.where(Job.owner == webhook.owner)
        query = query.order_by(Event.id).limit(limit)
        return [(event, job) for event, job in self._session.execute(query)]


class DeliveryRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, deliveries: Sequence[Delivery]) -> None:
        self._session.add_all(deliveries)
        self._session.flush()

    def list_due(self, webhook_id: str, at: datetime, limit: int) -> list[Delivery]:
        """List deliveries of a webhook whose next try is due, oldest first."""
        query = select(Delivery).where(Delivery.webhook_id == webhook_id, Delivery.next_try_at <= at)
        return list(self._session.scalars(query.order_by(Delivery.id).limit(limit)))

    def list_webhooks_with_due(self, at: datetime) -> list[Webhook]:
        """List the webhooks with a delivery whose next try is due."""
        due = select(Delivery.webhook_id).where(Delivery.next_try_at <= at)
        query = select(Webhook).where(Webhook.stopped_because.is_(None), Webhook.id.in_(due))
        return list(self._session.scalars(query.order_by(Webhook.id)))

    def count(self, webhook_id: str) -> int:
        return self._session.scalar(select(func.count()).where(Delivery.webhook_id == webhook_id)) or 0

    def postpone(self, delivery_id: str, num_tries: int, next_try_at: datetime) -> None:
        values = {"num_tries": num_tries, "next_try_at": next_try_at}
        self._session.execute(update(Delivery).where(Delivery.id == delivery_id).values(values))

    def postpone_due(self, webhook_id: str, at: datetime, next_try_at: datetime) -> None:
        """Postpone all deliveries of a webhook that are due, and count no try of them."""
        is_due = (Delivery.webhook_id == webhook_id, Delivery.next_try_at <= at)
        self._session.execute(update(Delivery).where(*is_due).values(next_try_at=next_try_at))

    def remove_old(self, webhook_id: str, until: datetime) -> None:
        """Give the deliveries of a webhook up that were made until then."""
        is_old = (Delivery.webhook_id == webhook_id, Delivery.created_at <= until)
        self._session.execute(delete(Delivery).where(*is_old))

    def remove(self, delivery_id: str) -> None:
        self._session.execute(delete(Delivery).where(Delivery.id == delivery_id))
