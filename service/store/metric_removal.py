"""Removal of metrics in pieces: each is one range of the primary key, however many rows are left."""

from sqlalchemy import Table, delete, select, tuple_
from sqlalchemy.orm import Session


def remove_some_metrics(session: Session, table: Table, job_id: str, limit: int) -> int:
    """Remove the first rows of a job from a table of metrics, at most `limit`, and return how many they were."""
    key = [column for column in table.primary_key if column.name != "job_id"]
    rows = select(*key).where(table.c.job_id == job_id).order_by(*key)
    last = session.execute(rows.offset(limit - 1).limit(1)).one_or_none()
    chosen = [table.c.job_id == job_id]
    if last is not None:
        chosen.append(tuple_(*key) <= tuple_(*last))
    return len(session.execute(delete(table).where(*chosen).returning(key[0])).all())
