"""Database tables of keys, sign-in tokens and browser sessions."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from service.database import Base


class ApiKey(Base):
    """An API key. Only the hash of its secret is stored."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(63))
    role: Mapped[str] = mapped_column(String(16))
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime]


class SignInToken(Base):
    """A token that opens a browser session, and can be used once."""

    __tablename__ = "sign_in_tokens"

    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    expires_at: Mapped[datetime]


class BrowserSession(Base):
    """A session of a browser that has the rights of a key."""

    __tablename__ = "browser_sessions"

    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    expires_at: Mapped[datetime]
    key: Mapped[ApiKey] = relationship(lazy="joined")
