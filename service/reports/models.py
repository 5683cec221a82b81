"""Database tables of reports."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.database import Base
from service.database.base import SerialId


class Metric(Base):
    """A report of a step or an evaluation."""

    __tablename__ = "metrics"
    __table_args__ = (
        UniqueConstraint("attempt_id", "rank", "stream", "seq"),
        Index("ix_metrics_job_id", "job_id", "kind", "id"),
    )

    id: Mapped[int] = mapped_column(SerialId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    """Number of the attempt."""
    rank: Mapped[int]
    stream: Mapped[str] = mapped_column(String(8))
    seq: Mapped[int]
    kind: Mapped[str] = mapped_column(String(10))
    step: Mapped[int] = mapped_column(BigInteger)
    """Batches consumed."""
    report: Mapped[dict[str, Any]]


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
