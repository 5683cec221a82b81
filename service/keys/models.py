"""Database tables of keys, sign-in tokens and browser sessions."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from service.database import Base
from service.database.base import make_partial_index


class KeyState(StrEnum):
    """State of a key; only a valid one is accepted."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


class ApiKey(Base):
    """An API key. Only the hash of its secret is stored."""

    __tablename__ = "api_keys"
    __table_args__ = (
        make_partial_index("uq_api_keys_owner", "owner", "name", where="revoked_at IS NULL", unique=True),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(63))
    owner: Mapped[str] = mapped_column(String(63))
    """Person, team or program that the key belongs to. All keys of one owner see the same jobs."""
    role: Mapped[str] = mapped_column(String(16))
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    """Time from which on the key is refused; null if it never expires."""
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    """Time from which on the key is refused, since it was revoked; null otherwise."""


class SignInToken(Base):
    """A token that opens a browser session, and can be used once."""

    __tablename__ = "sign_in_tokens"

    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    """Key that made the token; the token dies with it."""
    owner: Mapped[str] = mapped_column(String(63))
    """Owner that the session acts for."""
    role: Mapped[str] = mapped_column(String(16))
    expires_at: Mapped[datetime]


class BrowserSession(Base):
    """A session of a browser."""

    __tablename__ = "browser_sessions"

    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    """Key that the browser signed in with, or that made its link. The session dies with it."""
    owner: Mapped[str] = mapped_column(String(63))
    role: Mapped[str] = mapped_column(String(16))
    expires_at: Mapped[datetime]
    key: Mapped[ApiKey] = relationship(lazy="joined")
