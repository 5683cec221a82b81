"""SQL statements on keys, sign-in tokens and browser sessions."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, delete, or_, select, update
from sqlalchemy.orm import Session

from service.access.principal import Role
from service.keys.models import ApiKey, BrowserSession, KeyState, SignInToken


@dataclass(frozen=True)
class KeyFilter:
    """Filter of keys; a condition that is None does not restrict."""

    text: str | None = None
    """Part of the name or the owner; capitals do not matter."""
    role: Role | None = None
    state: KeyState | None = None
    ids: tuple[str, ...] | None = None


class KeyRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, key: ApiKey) -> None:
        """Add a key. Raises IntegrityError if its owner has a key of that name that is not revoked."""
        self._session.add(key)
        self._session.flush()

    def list_page(
        self,
        chosen: KeyFilter,
        at: datetime,
        *,
        owner: str | None,
        after: str | None,
        is_newest_first: bool,
        limit: int,
    ) -> list[ApiKey]:
        """List at most `limit` keys by their ids, those behind the key `after`.

        at: time by which keys have expired. owner: the only owner whose keys are listed; None lists all keys.
        """
        query = select(ApiKey).where(*_list_conditions(chosen, at)).limit(limit)
        query = query.order_by(ApiKey.id.desc() if is_newest_first else ApiKey.id)
        if owner is not None:
            query = query.where(ApiKey.owner == owner)
        if after is not None:
            query = query.where(ApiKey.id < after if is_newest_first else ApiKey.id > after)
        return list(self._session.scalars(query))

    def get(self, key_id: str) -> ApiKey | None:
        return self._session.get(ApiKey, key_id)

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
    return and_(ApiKey.role == Role.ADMIN, _is_in_state(KeyState.VALID, at))


def _is_in_state(state: KeyState, at: datetime) -> ColumnElement[bool]:
    if state is KeyState.REVOKED:
        return ApiKey.revoked_at.is_not(None)
    if state is KeyState.EXPIRED:
        return and_(ApiKey.revoked_at.is_(None), ApiKey.expires_at <= at)
    return and_(ApiKey.revoked_at.is_(None), or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > at))


def _list_conditions(chosen: KeyFilter, at: datetime) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if chosen.text is not None:
        names = (ApiKey.name, ApiKey.owner)
        conditions.append(or_(*(name.icontains(chosen.text, autoescape=True) for name in names)))
    if chosen.role is not None:
        conditions.append(ApiKey.role == chosen.role)
    if chosen.state is not None:
        conditions.append(_is_in_state(chosen.state, at))
    if chosen.ids is not None:
        conditions.append(ApiKey.id.in_(chosen.ids))
    return conditions


class SessionRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def use_token(self, token_hash: str, at: datetime) -> SignInToken | None:
        """Delete a sign-in token and return it; None if it is unknown, used or expired."""
        token = self._session.scalar(
            delete(SignInToken).where(SignInToken.token_hash == token_hash).returning(SignInToken)
        )
        return token if token and token.expires_at > at else None

    def get_token(self, token_hash: str) -> SignInToken | None:
        """Return a sign-in token, which may have expired; None if it is unknown or used."""
        return self._session.get(SignInToken, token_hash)

    def add(self, row: SignInToken | BrowserSession) -> None:
        self._session.add(row)

    def get(self, token_hash: str, at: datetime) -> BrowserSession | None:
        browser_session = self._session.get(BrowserSession, token_hash)
        return browser_session if browser_session and browser_session.expires_at > at else None

    def remove(self, token_hash: str) -> BrowserSession | None:
        """Delete a browser session and return it; None if absent."""
        browser_session = self._session.get(BrowserSession, token_hash)
        if browser_session is not None:
            self._session.execute(delete(BrowserSession).where(BrowserSession.token_hash == token_hash))
        return browser_session

    def remove_by_key(self, key_id: str) -> None:
        """Delete all sign-in tokens and browser sessions of a key."""
        self._session.execute(delete(SignInToken).where(SignInToken.key_id == key_id))
        self._session.execute(delete(BrowserSession).where(BrowserSession.key_id == key_id))

    def remove_expired(self, at: datetime) -> None:
        self._session.execute(delete(SignInToken).where(SignInToken.expires_at <= at))
        self._session.execute(delete(BrowserSession).where(BrowserSession.expires_at <= at))
