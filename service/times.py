"""The current time, everywhere in UTC and by the clock of the database, which all processes of a service share."""

from datetime import UTC, datetime, timedelta

_offset = timedelta(0)


def read_clock() -> datetime:
    """Return the time by the clock of this machine."""
    return datetime.now(UTC)


def now() -> datetime:
    """Return the time by the clock of the database, as far as `follow_clock` has compared the two."""
    return read_clock() + _offset


def follow_clock(database_time: datetime) -> None:
    """Have `now` follow the clock of the database from here on. database_time: what that clock shows now."""
    global _offset  # noqa: PLW0603
    _offset = database_time - read_clock()
