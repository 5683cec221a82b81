"""SQL statements on the idempotency keys of requests that create jobs."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import delete, select, tuple_
from sqlalchemy.orm import Session

from service.store.models import IdempotencyKey
from service.times import now

LIFETIME = timedelta(hours=24)
"""Time for which a key is known. After it, the same request creates another job."""
MAX_REMOVED = 100
"""Number of expired keys that are removed when a new one is added, so that no request waits for long."""


class IdempotencyRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, owner: str, key: str) -> IdempotencyKey | None:
        """Return a key that has not expired; None if absent. owner: id of the sender."""
        row = self._session.get(IdempotencyKey, (owner, key))
        return row if row is not None and row.created_at > now() - LIFETIME else None

    def add(self, owner: str, key: str, request_hash: str, job_id: str) -> None:
        """Add the key of a new job, and remove some of those that have expired."""
        has_expired = IdempotencyKey.created_at <= now() - LIFETIME
        name = (IdempotencyKey.owner, IdempotencyKey.key)
        # Without those that a concurrent request removes: two that wait for each other's rows would fail.
        some = select(*name).where(has_expired).limit(MAX_REMOVED).with_for_update(skip_locked=True)
        self._session.execute(delete(IdempotencyKey).where(tuple_(*name).in_(some)))
        same = (IdempotencyKey.owner == owner, IdempotencyKey.key == key)
        self._session.execute(delete(IdempotencyKey).where(*same, has_expired))
        self._session.add(IdempotencyKey(owner=owner, key=key, body_hash=request_hash, job_id=job_id, created_at=now()))
        self._session.flush()

    def forget_jobs(self, job_ids: Sequence[str]) -> None:
        """Remove the keys that created some jobs."""
        self._session.execute(delete(IdempotencyKey).where(IdempotencyKey.job_id.in_(job_ids)))
