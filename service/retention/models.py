"""Database table of the sizes of run directories."""

from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from service.database import Base


class RunSize(Base):
    """Size of the run directory of a job that has ended, measured once: it does not change any more."""

    __tablename__ = "run_sizes"

    job_id: Mapped[str] = mapped_column(String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    """Bytes of its files; 0 if the service does not see them."""
