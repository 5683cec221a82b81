"""Tables of jobs, their attempts and their events."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from service.database import Base
from service.database.base import SerialId


class Job(Base):
    """A job. `state` changes through `JobRepository.change_state` alone."""

    __tablename__ = "jobs"
    __table_args__ = (Index("ix_jobs_state", "state", "priority"), Index("ix_jobs_name", "name"))

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(63))
    priority: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(String(32))
    message: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
    created_by: Mapped[str] = mapped_column(String(63))
    started_at: Mapped[datetime | None]
    """Of the first attempt."""
    finished_at: Mapped[datetime | None]
    num_attempts: Mapped[int] = mapped_column(default=0)
    restarts_at: Mapped[datetime | None]
    """Not started again before; null while it waits for no restart."""
    world_size: Mapped[int]
    num_cores: Mapped[int]
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    num_gpus: Mapped[int]
    spec: Mapped[dict[str, Any]]
    """The document as submitted, with defaults filled in."""
    resolved: Mapped[dict[str, Any]]
    """`dlrm.config.ResolvedJob`, with absolute paths: what becomes `spec.json`."""
    progress: Mapped[dict[str, Any]]
    metrics: Mapped[dict[str, Any]]
    """Of the outcome."""
    run_directory: Mapped[str] = mapped_column(Text)
    labels: Mapped[list["JobLabel"]] = relationship(lazy="selectin", order_by="JobLabel.name")


class JobLabel(Base):
    """One label of one job, to find jobs by."""

    __tablename__ = "job_labels"
    __table_args__ = (Index("ix_job_labels_name", "name", "value", "job_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    value: Mapped[str] = mapped_column(String(63))


class IdempotencyKey(Base):
    """What a client called one submission, so that sending it twice makes one job."""

    __tablename__ = "idempotency_keys"

    owner: Mapped[str] = mapped_column(String(40), primary_key=True)
    """Id of the API key that submitted."""
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    body_hash: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))


class Attempt(Base):
    """One start of a job."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("job_id", "number"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    number: Mapped[int]
    """Counted from 1."""
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(32))
    message: Mapped[str] = mapped_column(Text, default="")
    exit_code: Mapped[int | None]
    token_hash: Mapped[str] = mapped_column(String(64))
    """Of the token its reports are pushed with."""
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    start_step: Mapped[int | None] = mapped_column(BigInteger)
    """Batches consumed before it; null until it trains."""
    evaluated_step: Mapped[int | None] = mapped_column(BigInteger)
    """Batches consumed before the last evaluation that counted when it began; null until it trains."""
    saved_step: Mapped[int | None] = mapped_column(BigInteger)
    """Of the newest checkpoint it has written, noted when it has ended; null where it wrote none."""
    stop_reason: Mapped[str | None] = mapped_column(String(32))
    """Why the service stops or kills it, null while it does not; outlives a restart of the service."""
    stop_message: Mapped[str] = mapped_column(Text, default="")
    stop_requested_at: Mapped[datetime | None]


class Event(Base):
    """Something that happened to a job: a change of state, or what a rank reported."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_job_id", "job_id", "id"),)

    id: Mapped[int] = mapped_column(SerialId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    attempt: Mapped[int | None]
    """Number of the attempt."""
    time: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String(63))
    kind: Mapped[str] = mapped_column(String(8))
    from_state: Mapped[str | None] = mapped_column(String(16))
    to_state: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(32))
    message: Mapped[str] = mapped_column(Text, default="")
    name: Mapped[str | None] = mapped_column(Text)
    rank: Mapped[int | None]
    details: Mapped[dict[str, Any]]
