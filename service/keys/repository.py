"""SQL statements on keys, sign-in tokens and browser sessions."""

from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from service.keys.models import ApiKey, BrowserSession, SignInToken
from service.keys.roles import Role


class KeyRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, key: ApiKey) -> None:
        self._session.add(key)
        self._session.flush()

    def list_all(self) -> list[ApiKey]:
        return list(self._session.scalars(select(ApiKey).order_by(ApiKey.id)))

    def get(self, key_id: str) -> ApiKey | None:
        return self._session.get(ApiKey, key_id)

    def get_by_secret(self, secret_hash: str) -> ApiKey | None:
        return self._session.scalar(select(ApiKey).where(ApiKey.secret_hash == secret_hash))

    def count_admins(self) -> int:
        """Count the admin keys, and lock their rows where the database supports row locks."""
        admins = select(ApiKey.id).where(ApiKey.role == Role.ADMIN).with_for_update()
        return len(self._session.scalars(admins).all())

    def get_first_admin(self) -> ApiKey | None:
        return self._session.scalar(select(ApiKey).where(ApiKey.role == Role.ADMIN).order_by(ApiKey.id).limit(1))

    def is_empty(self) -> bool:
        return self._session.scalar(select(func.count()).select_from(ApiKey)) == 0

    def remove(self, key_id: str) -> None:
        self._session.execute(delete(ApiKey).where(ApiKey.id == key_id))

    def add_sign_in_token(self, token_hash: str, key_id: str, expires_at: datetime) -> None:
        self._session.add(SignInToken(token_hash=token_hash, key_id=key_id, expires_at=expires_at))

    def use_sign_in_token(self, token_hash: str, at: datetime) -> str | None:
        """Delete a sign-in token and return the id of its key; None where it is unknown, used or expired."""
        row = self._session.execute(
            delete(SignInToken)
            .where(SignInToken.token_hash == token_hash)
            .returning(SignInToken.key_id, SignInToken.expires_at)
        ).one_or_none()
        return row.key_id if row and row.expires_at > at else None

    def add_browser_session(self, token_hash: str, key_id: str, expires_at: datetime) -> None:
        self._session.add(BrowserSession(token_hash=token_hash, key_id=key_id, expires_at=expires_at))

    def get_by_browser_session(self, token_hash: str, at: datetime) -> ApiKey | None:
        browser_session = self._session.get(BrowserSession, token_hash)
        return browser_session.key if browser_session and browser_session.expires_at > at else None

    def remove_browser_session(self, token_hash: str) -> None:
        self._session.execute(delete(BrowserSession).where(BrowserSession.token_hash == token_hash))

    def remove_expired(self, at: datetime) -> None:
        self._session.execute(delete(SignInToken).where(SignInToken.expires_at <= at))
        self._session.execute(delete(BrowserSession).where(BrowserSession.expires_at <= at))
