"""Database tables of jobs: their attempts, events, checkpoints, reports, logs and quotas."""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from service.database import Base
from service.database.base import ForeignText, SerialId, make_partial_index
from service.store.states import ACTIVE_STATES, WATCHED, AttemptState, JobState

MAX_EVENT_NAME_LENGTH = 63
"""Length up to which events are found by their name."""


def _exclude(states: Collection[StrEnum]) -> str:
    """Return the condition that a state is none of these; for `IN`, SQLite would not use an index with a condition."""
    return f"state NOT IN ({', '.join(repr(state.value) for state in sorted(states))})"


_WATCHED, _ACTIVE = _exclude(frozenset(JobState) - WATCHED), _exclude(frozenset(AttemptState) - ACTIVE_STATES)


_IS_SHORTLY_NAMED = f"name IS NOT NULL AND length(name) <= {MAX_EVENT_NAME_LENGTH}"
"""Condition of the index of events by name: an index takes no text of any length, and a trainer may write any name."""


class Job(Base):
    """A job, without what may be large, its `JobDocument`: lists and each round of the control loop read many jobs.

    Only `JobRepository.change_state` changes `state`.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_queue", "state", "launcher", "priority", "created_at", "id", "is_held", "restarts_at", "owner"),
        Index("ix_jobs_deadline", "state", "deadline_at"),
        Index("ix_jobs_owner", "owner", "id"),
        Index("ix_jobs_owner_state", "owner", "state", "id"),
        Index("ix_jobs_state", "state", "id"),
        Index("ix_jobs_name", "name", "id"),
        make_partial_index("ix_jobs_watched", "launcher", where=_WATCHED),
        make_partial_index(
            *("ix_jobs_finished_at", "finished_at", "id", "owner", "state"),
            where="finished_at IS NOT NULL AND deleting_at IS NULL",
        ),
        make_partial_index("ix_jobs_deleting_at", "deleting_at", where="deleting_at IS NOT NULL"),
        make_partial_index("ix_jobs_warm_start", "warm_start_job_id", where="warm_start_job_id IS NOT NULL"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(63))
    priority: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(String(32))
    message: Mapped[str] = mapped_column(ForeignText)
    created_at: Mapped[datetime]
    created_by: Mapped[str] = mapped_column(String(63))
    """Name of the key that submitted the job."""
    owner: Mapped[str] = mapped_column(String(63))
    """Owner of the submitting key, or of the job whose document this one repeats."""
    restarted_from: Mapped[str | None] = mapped_column(String(40))
    """Id of the job whose document this one repeats; null if it was submitted."""
    started_at: Mapped[datetime | None]
    """Start time of the first attempt."""
    finished_at: Mapped[datetime | None]
    num_attempts: Mapped[int] = mapped_column(default=0)
    restarts_at: Mapped[datetime | None]
    """Time before which the job is not started again; null while it waits for no restart."""
    is_held: Mapped[bool] = mapped_column(default=False)
    """Whether the job, while it is queued, waits until it is released."""
    at_head_since: Mapped[datetime | None]
    """Time since which the job is the first one of the queue and cannot start; null otherwise."""
    deadline_at: Mapped[datetime | None]
    """Time from which on the job is stopped, or not started; null while it has no such time."""
    deleting_at: Mapped[datetime | None]
    """Time from which on the job is hidden, while its files and rows are removed; null otherwise."""
    launcher: Mapped[str] = mapped_column(String(16), default="local")
    world_size: Mapped[int]
    num_nodes: Mapped[int] = mapped_column(default=1)
    """Number of machines; the largest one of a range."""
    min_nodes: Mapped[int] = mapped_column(default=1)
    """Smallest number of machines with which an attempt begins."""
    num_cores: Mapped[int]
    """Cores on each machine, as memory and GPUs."""
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    num_gpus: Mapped[int]
    max_restarts: Mapped[int] = mapped_column(server_default="0")
    deadline_seconds: Mapped[int | None]
    """Seconds from the start or the submission of the job to `deadline_at`; null if it has no deadline."""
    warm_start_job_id: Mapped[str | None] = mapped_column(String(40))
    """Id of the job whose model this one starts from; null if it starts from none, or from a directory."""
    placement: Mapped[dict[str, Any] | None]
    """Fields of `dlrm.config.KubernetesConfig`: placement on a cluster; null if the document names none."""
    batch: Mapped[int | None]
    """Samples of the largest batch; null while it is undecided."""
    optimizer: Mapped[str | None] = mapped_column(String(16))
    """Name of the dense optimizer."""
    progress: Mapped[dict[str, Any]]
    has_warnings: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Whether the metrics of the last outcome say something against the model."""
    run_directory: Mapped[str] = mapped_column(ForeignText)
    model_path: Mapped[str | None] = mapped_column(ForeignText)
    """Path or URI of the model, as the run has reported it; null before, and where the service looks for itself."""


IS_WATCHED = text(f"jobs.{_WATCHED}")
"""Condition on jobs in a state of `WATCHED`, written as in the index of these few jobs, so that it serves."""


class JobDocument(Base):
    """Parts of a job that may be large. Only requests for one job, and starts of attempts, read them."""

    __tablename__ = "job_documents"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    spec: Mapped[dict[str, Any]]
    """Job document as submitted, with defaults filled in."""
    resolved: Mapped[dict[str, Any]]
    """Fields of `dlrm.config.ResolvedJob`, with absolute paths; written to `spec.json` in the run directory."""
    metrics: Mapped[dict[str, Any]]
    """Metrics of the last outcome; empty before."""


class JobLabel(Base):
    """One label of one job, by which jobs can be found."""

    __tablename__ = "job_labels"
    __table_args__ = (Index("ix_job_labels_name", "name", "value", "job_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    value: Mapped[str] = mapped_column(String(63))


class JobText(Base):
    """Text in which one job is looked for, see `service.store.job_texts`. On SQLite it must not be updated in place."""

    __tablename__ = "job_texts"
    __table_args__ = (UniqueConstraint("job_id"),)

    id: Mapped[int] = mapped_column(SerialId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    text: Mapped[str] = mapped_column(Text)


class IdempotencyKey(Base):
    """Client's key for one submission, so that a repeated request creates only one job."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        Index("ix_idempotency_keys_created_at", "created_at"),
        Index("ix_idempotency_keys_job_id", "job_id"),
    )

    owner: Mapped[str] = mapped_column(String(40), primary_key=True)
    """Id of the sender, see `Principal.sender_id`."""
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    body_hash: Mapped[str] = mapped_column(String(64))
    """SHA-256 hex digest of the job document."""
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    created_at: Mapped[datetime]


class Attempt(Base):
    """One start of a job."""

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        make_partial_index("ix_attempts_active", "lease_token", where=_ACTIVE),
        make_partial_index("ix_attempts_finished_at", "finished_at", where="finished_at IS NOT NULL"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    number: Mapped[int]
    """Number of the attempt within its job, counted from 1."""
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(32))
    message: Mapped[str] = mapped_column(ForeignText, default="")
    exit_code: Mapped[int | None]
    token_hash: Mapped[str] = mapped_column(String(64))
    """Hash of the token with which the ranks push their reports."""
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    start_step: Mapped[int | None] = mapped_column(BigInteger)
    """Batches consumed before the attempt; null until it trains."""
    evaluated_step: Mapped[int | None] = mapped_column(BigInteger)
    """Batches consumed before the last evaluation that counts when the attempt begins; null until it trains."""
    saved_step: Mapped[int | None] = mapped_column(BigInteger)
    """Step of the newest checkpoint that the attempt wrote, recorded at its end; null if it wrote none."""
    stop_reason: Mapped[str | None] = mapped_column(String(32))
    """Reason for which the service stops or kills the attempt; null while it does not. Kept here so that it survives a
    restart of the service."""
    stop_message: Mapped[str] = mapped_column(ForeignText, default="")
    stop_requested_at: Mapped[datetime | None]
    lease_owner: Mapped[str | None] = mapped_column(String(255))
    """Process of the service that acts on this attempt; null before the first one."""
    lease_token: Mapped[int | None] = mapped_column(BigInteger)
    """Token of the leader that acts on this attempt. What another one found is not applied."""
    lease_expires_at: Mapped[datetime | None]
    node: Mapped[str | None] = mapped_column(String(255))
    """Machine that the attempt runs on; null until it is launched."""
    devices: Mapped[dict[str, Any] | None]
    """GPUs and cores that the attempt has for itself, as lists of their numbers; null until it is launched."""
    observed_end: Mapped[dict[str, Any] | None]
    """End of the attempt as its launcher has seen it first; null until then. It may see less of it later."""
    rank_ends: Mapped[list[dict[str, Any]] | None]
    """Ends of the ranks that failed, as `dlrm.record.RankEnd` has them; null until the attempt has ended."""
    reported_end: Mapped[dict[str, Any] | None]
    """End of the attempt as its launch process has reported it, `dlrm.record.AttemptEnd`; null before."""


IS_ACTIVE = text(f"attempts.{_ACTIVE}")
"""Condition on attempts that have not ended, written as in the index of these few, so that it serves."""


class ReportedCheckpoint(Base):
    """A complete checkpoint of a run whose directory the service does not see, as the run has reported it."""

    __tablename__ = "checkpoints"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Batches consumed."""
    attempt: Mapped[int]
    """Number of the attempt that wrote it."""
    num_steps: Mapped[int] = mapped_column(BigInteger)
    num_samples: Mapped[int] = mapped_column(BigInteger)
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    world_size: Mapped[int]
    time: Mapped[datetime]
    """Time of completion."""
    path: Mapped[str] = mapped_column(ForeignText)
    """Path or URI of its directory."""


class Event(Base):
    """Event in the life of a job: a change of state, or a report of a rank."""

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_job_id", "job_id", "id"),
        make_partial_index("ix_events_name", "job_id", "name", "id", where=_IS_SHORTLY_NAMED),
    )

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
    message: Mapped[str] = mapped_column(ForeignText, default="")
    name: Mapped[str | None] = mapped_column(ForeignText)
    rank: Mapped[int | None]
    details: Mapped[dict[str, Any]]


IS_SHORTLY_NAMED = text(_IS_SHORTLY_NAMED)
"""Condition on events whose name is in the index of names, written as there, so that it serves."""


class StreamPosition(Base):
    """Position in one stream of one rank: lines 1 to `acknowledged_seq` are known."""

    __tablename__ = "stream_positions"

    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    stream: Mapped[str] = mapped_column(String(8), primary_key=True)
    acknowledged_seq: Mapped[int]


class StoredLogPart(Base):
    """Lines of a log of an attempt that came in one push."""

    __tablename__ = "log_parts"

    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    stream: Mapped[str] = mapped_column(String(8), primary_key=True)
    start_byte: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Bytes of the log before this part."""
    num_bytes: Mapped[int]
    text: Mapped[str] = mapped_column(Text)
    """The lines with their ends, in UTF-8 of `num_bytes` bytes."""


class Quota(Base):
    """Limits on all jobs of one owner together; null if there is no limit."""

    __tablename__ = "quotas"

    owner: Mapped[str] = mapped_column(String(63), primary_key=True)
    num_cores: Mapped[int | None]
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    num_gpus: Mapped[int | None]
    num_running: Mapped[int | None]
    """Number of jobs that hold resources at the same time."""
    num_queued: Mapped[int | None]
    """Number of jobs that wait at the same time."""
