"""Database table of schedules."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.database import Base


class Schedule(Base):
    """A job document that is submitted at the times of a cron expression."""

    __tablename__ = "schedules"
    __table_args__ = (UniqueConstraint("owner", "name"), Index("ix_schedules_next_at", "next_at"))

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(63))
    owner: Mapped[str] = mapped_column(String(63))
    """Owner of the schedule and of its jobs."""
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    """Key of the sender; once it is refused, the schedule pauses."""
    cron: Mapped[str] = mapped_column(String(100))
    time_zone: Mapped[str] = mapped_column(String(64))
    """Zone of the times of the expression, and of days and hours in the document."""
    document: Mapped[dict[str, Any]]
    """Job document, with placeholders."""
    is_paused: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime]
    next_at: Mapped[datetime | None]
    """Time of the next submission; null while the schedule is paused."""
    last_due_at: Mapped[datetime | None]
    """Time for which a job was submitted, or skipped, last."""
    last_result: Mapped[str | None] = mapped_column(Text)
    """Result of the last time that was due, in words."""
    last_job_id: Mapped[str | None] = mapped_column(String(40))
    last_job_due_at: Mapped[datetime | None]
    """Time for which the last job was submitted; null once it is known to have succeeded."""
    previous_job_id: Mapped[str | None] = mapped_column(String(40))
    """Last job that has succeeded; the next one may start from its model."""
    previous_due_at: Mapped[datetime | None]
    """Time up to which the rows of that job reach."""
