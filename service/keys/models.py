"""Tables of keys and of what they sign in."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from service.database import Base


class ApiKey(Base):
    """A key, of which the hash alone is kept."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(63))
    role: Mapped[str] = mapped_column(String(16))
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime]


class SignInToken(Base):
    """A token that opens one browser session, once."""

    __tablename__ = "sign_in_tokens"

    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    expires_at: Mapped[datetime]


class BrowserSession(Base):
    """A browser that is signed in with the rights of a key."""

    __tablename__ = "browser_sessions"

    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    expires_at: Mapped[datetime]
    key: Mapped[ApiKey] = relationship(lazy="joined")
