"""Database table of quotas."""

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from service.database import Base


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
