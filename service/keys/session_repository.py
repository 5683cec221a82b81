"""SQL statements on sign-in tokens and browser sessions."""

from datetime import datetime

from sqlalchemy import delete
from sqlalchemy.orm import Session

from service.keys.models import BrowserSession, SignInToken


class SessionRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add_token(self, token: SignInToken) -> None:
        self._session.add(token)

    def use_token(self, token_hash: str, at: datetime) -> SignInToken | None:
        """Delete a sign-in token and return it; None if it is unknown, used or expired."""
        token = self._session.scalar(
            delete(SignInToken).where(SignInToken.token_hash == token_hash).returning(SignInToken)
        )
        return token if token and token.expires_at > at else None

    def add(self, browser_session: BrowserSession) -> None:
        self._session.add(browser_session)

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
