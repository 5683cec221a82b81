"""Times of a schedule: its cron expression in its time zone."""

from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

NUM_FIELDS = 5
MAX_COUNTED = 1000
"""Largest number of missed times that are counted."""


def parse_zone(name: str) -> tzinfo:
    """Return a time zone by its name. Raises ValueError if it is not known."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, KeyError, ValueError):
        raise ValueError(f"there is no time zone {name!r}") from None


def find_next(cron: str, zone: tzinfo, after: datetime) -> datetime:
    """Return the first time of an expression after a time. Raises ValueError if the expression is invalid."""
    return _find(cron, zone, after, reverse=False)


def find_last(cron: str, zone: tzinfo, until: datetime) -> datetime:
    """Return the last time of an expression up to a time. Raises ValueError if the expression is invalid."""
    return _find(cron, zone, until + timedelta(seconds=1), reverse=True)


def count_times(cron: str, zone: tzinfo, start: datetime, end: datetime) -> int:
    """Count the times of an expression from `start`, which is one of them, to before `end`; at most MAX_COUNTED."""
    end = end.astimezone(zone)
    times = CronSim(cron, (start - timedelta(seconds=1)).astimezone(zone))
    return sum(1 for _ in takewhile(lambda pair: pair[1] < end, zip(range(MAX_COUNTED), times, strict=False)))


def _find(cron: str, zone: tzinfo, start: datetime, *, reverse: bool) -> datetime:
    if len(cron.split()) != NUM_FIELDS:
        raise ValueError("should have five fields: minute, hour, day of the month, month, day of the week")
    try:
        return next(CronSim(cron, start.astimezone(zone), reverse=reverse)).astimezone(UTC)
    except CronSimError as error:
        raise ValueError(str(error)) from None
    except StopIteration:
        raise ValueError("names no time at all") from None
