"""Notifications of PostgreSQL. Imported on PostgreSQL alone: its driver is an optional package."""

from collections.abc import Callable, Iterator

import psycopg
import structlog
from psycopg.conninfo import make_conninfo as format_conninfo

from service.database.database import Database

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
"""Longest time for which the loss of a connection, and with it of a lock, stays unnoticed."""
CONNECT_SECONDS = 5
KEEPALIVES = {"keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 3, "tcp_user_timeout": 5000}
"""Options of a connection that listens: a server that is gone is noticed within some 5 s."""


def make_conninfo(database: Database, work: str) -> str:
    """Make the connection string of a connection that listens. work: what it is for, as the server shows it."""
    url = database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    return format_conninfo(url, connect_timeout=CONNECT_SECONDS, application_name=f"dlrm {work}", **KEEPALIVES)


def wait_for_notification(connection: psycopg.Connection) -> Iterator[str]:
    """Yield the text of the next notification, and of those that come with it; none after POLL_SECONDS."""
    for notification in connection.notifies(timeout=POLL_SECONDS, stop_after=1):
        yield notification.payload


def listen(
    database: Database,
    channel: str,
    on_start: Callable[[], None],
    on_notify: Callable[[str], None],
    is_over: Callable[[], bool],
) -> None:
    """Call `on_notify` with the text of each notification on a channel, until `is_over` or the connection is lost.

    on_start: called once notifications are received.
    """
    try:
        with psycopg.connect(make_conninfo(database, channel), autocommit=True) as connection:
            connection.execute(f"LISTEN {channel}".encode())
            on_start()
            while not is_over():
                for payload in wait_for_notification(connection):
                    on_notify(payload)
    except psycopg.Error as error:
        log.warning("notifications_lost", channel=channel, error=str(error).strip())
