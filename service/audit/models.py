"""Database table of the audit log, and the actions that it records."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from service.database import Base
from service.database.base import SerialId


class AuditEvent(Base):
    """An action on keys, sessions or quotas, or on a job of another owner; kept after its target is deleted."""

    __tablename__ = "audit_events"
    __table_args__ = (Index("ix_audit_events_time", "time"),)

    id: Mapped[int] = mapped_column(SerialId, primary_key=True, autoincrement=True)
    time: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String(63))
    """Owner of the key that acted; empty if nobody was signed in."""
    key_id: Mapped[str | None] = mapped_column(String(40))
    action: Mapped[str] = mapped_column(String(40))
    target: Mapped[str] = mapped_column(String(255))
    """Id or name of what was changed."""
    address: Mapped[str] = mapped_column(String(64))
    """Network address of the client."""
    request_id: Mapped[str] = mapped_column(String(64))
    details: Mapped[dict[str, Any]]


class AuditAction(StrEnum):
    """Action on a key, a session, a quota, a job, a schedule or a webhook."""

    KEY_CREATED = "key_created"
    KEY_REVOKED = "key_revoked"
    LINK_CREATED = "link_created"
    SIGNED_IN = "signed_in"
    SIGN_IN_FAILED = "sign_in_failed"
    SIGNED_OUT = "signed_out"
    QUOTA_CHANGED = "quota_changed"
    JOB_CANCELLED = "job_cancelled"
    JOB_PAUSED = "job_paused"
    JOB_RESUMED = "job_resumed"
    JOB_RESTARTED = "job_restarted"
    JOB_HELD = "job_held"
    JOB_RELEASED = "job_released"
    JOB_EDITED = "job_edited"
    SCHEDULE_CREATED = "schedule_created"
    SCHEDULE_CHANGED = "schedule_changed"
    SCHEDULE_REMOVED = "schedule_removed"
    WEBHOOK_CREATED = "webhook_created"
    WEBHOOK_REMOVED = "webhook_removed"
    JOB_DELETED = "job_deleted"
    JOB_EXPIRED = "job_expired"
    """Retention has removed the job."""
