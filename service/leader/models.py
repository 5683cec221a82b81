"""Database table of the leader."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from service.database import Base


class LeaderRow(Base):
    """The process of the service that looks after the jobs; the table has one row."""

    __tablename__ = "leadership"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    token: Mapped[int] = mapped_column(BigInteger)
    """Number of this leader, one more than its predecessor's."""
    owner: Mapped[str] = mapped_column(String(255))
    """Machine and process of the leader."""
    service_id: Mapped[str] = mapped_column(String(40))
    """Identity of the service, by which it recognises the processes of its attempts."""
    since: Mapped[datetime]
    renewed_at: Mapped[datetime | None]
    """Time at which the leader last renewed its leases, by the clock of the database; None before the first time."""
    capacity: Mapped[dict[str, Any] | None]
    """Resources that jobs may occupy where the leader starts them; None before a leader has reported them."""
