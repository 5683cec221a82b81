"""Events: written so that the order of their ids is the order in which others see them."""

from collections.abc import Sequence

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from service.database.database import add_last_act, note_change
from service.store.models import Event, Job

ORDER_KEY = 0x646C726D_65766E74
"""Key of the advisory lock of whoever adds events."""


def add_event(session: Session, event: Event) -> None:
    """Add an event, which the transaction of `session` inserts as the last thing before its commit.

    PostgreSQL numbers rows as they are inserted, and others see them after the commit: a reader that has seen event 6
    would never see event 5 of a longer transaction. So one transaction after the other inserts its events and commits.
    """
    note_change(session, event.job_id)
    add_last_act(session, _insert_in_turn, event)


def _insert_in_turn(session: Session, events: Sequence[Event]) -> None:
    session.flush()
    if session.get_bind().dialect.name == "postgresql":
        # The lock that each reference to a job takes, now: whoever holds ORDER_KEY waits for no other lock.
        job_ids = sorted({event.job_id for event in events})
        session.execute(
            select(Job.id).where(Job.id.in_(job_ids)).order_by(Job.id).with_for_update(read=True, key_share=True)
        )
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ORDER_KEY})
    session.add_all(events)
    session.flush()
