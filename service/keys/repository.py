"""SQL statements on keys."""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.orm import Session

from service.keys.models import ApiKey
from service.keys.roles import Role


class KeyRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, key: ApiKey) -> None:
        """Add a key. Raises IntegrityError if its owner has a key of that name that is not revoked."""
        self._session.add(key)
        self._session.flush()

    def list_page(self, *, owner: str | None, after: str | None, limit: int) -> list[ApiKey]:
        """List at most `limit` keys with ids above `after`, oldest first. owner: only those of one owner."""
        query = select(ApiKey).order_by(ApiKey.id).limit(limit)
        if owner is not None:
            query = query.where(ApiKey.owner == owner)
        if after is not None:
            query = query.where(ApiKey.id > after)
        return list(self._session.scalars(query))

    def get(self, key_id: str) -> ApiKey | None:
        return self._session.get(ApiKey, key_id)

    def get_existing(self, key_id: str) -> ApiKey:
        """Return a key, which must exist."""
        return self._session.get_one(ApiKey, key_id)

    def get_by_secret(self, secret_hash: str) -> ApiKey | None:
        return self._session.scalar(select(ApiKey).where(ApiKey.secret_hash == secret_hash))

    def lock_live_admins(self, at: datetime) -> list[str]:
        """List the ids of the admin keys that are neither expired nor revoked.

        Locks their rows where the database supports row locks.
        """
        return list(self._session.scalars(select(ApiKey.id).where(_is_live_admin(at)).with_for_update()))

    def get_first_live_admin(self, at: datetime) -> ApiKey | None:
        return self._session.scalar(select(ApiKey).where(_is_live_admin(at)).order_by(ApiKey.id).limit(1))

    def revoke(self, key_id: str, at: datetime) -> bool:
        """Revoke a key, and return whether it was not revoked before."""
        statement = update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None)).values(revoked_at=at)
        return self._session.scalar(statement.returning(ApiKey.id)) is not None

    def revoke_expired(self, owner: str, name: str, at: datetime) -> None:
        """Revoke the expired key of this name, so that another one can have it."""
        self._session.execute(
            update(ApiKey)
            .where(ApiKey.owner == owner, ApiKey.name == name, ApiKey.revoked_at.is_(None), ApiKey.expires_at <= at)
            .values(revoked_at=at)
        )

    def set_last_used(self, key_id: str, at: datetime, interval: timedelta) -> None:
        """Record a use of a key, unless one was recorded within `interval` before."""
        is_due = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at <= at - interval)
        self._session.execute(update(ApiKey).where(ApiKey.id == key_id, is_due).values(last_used_at=at))


def _is_live_admin(at: datetime) -> ColumnElement[bool]:
    is_unexpired = or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > at)
    return and_(ApiKey.role == Role.ADMIN, ApiKey.revoked_at.is_(None), is_unexpired)
