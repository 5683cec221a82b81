"""Database tables of webhooks, and of what is still to be delivered to them."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.database import Base


class Webhook(Base):
    """An address that gets requests about changes of jobs; `schemas.Webhook` describes its fields."""

    __tablename__ = "webhooks"
    __table_args__ = (Index("ix_webhooks_owner", "owner", "id"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner: Mapped[str] = mapped_column(String(63))
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    """Key of the sender; once it is refused, the webhook stops."""
    url: Mapped[str] = mapped_column(Text)
    secret: Mapped[str] = mapped_column(String(100))
    """Secret of the signatures. Not a hash: a signature is made from the secret itself."""
    states: Mapped[list[str]] = mapped_column(JSON)
    labels: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    last_event_id: Mapped[int] = mapped_column(BigInteger)
    """Event up to which deliveries have been made of all events."""
    stopped_because: Mapped[str | None] = mapped_column(Text)
    last_tried_at: Mapped[datetime | None]
    last_result: Mapped[str | None] = mapped_column(Text)


class Delivery(Base):
    """A request that was not answered with success yet."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        UniqueConstraint("webhook_id", "event_id"),
        Index("ix_webhook_deliveries_next_try_at", "next_try_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    """Id of the request, the same in every try: a receiver knows by it what comes twice."""
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    event_id: Mapped[int | None] = mapped_column(BigInteger)
    """Event that is reported; null for a test."""
    body: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
    num_tries: Mapped[int] = mapped_column(default=0)
    next_try_at: Mapped[datetime]
