"""Options whose value is a time, such as `--since 2d` and `--until 2026-03-01`."""

import re
from datetime import datetime, timedelta

from cli.local.errors import BadInputError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_time(text: str, option: str, now: datetime) -> datetime:
    """Parse a duration before `now`, or a date with or without a time, which is local where it names no zone.

    option: name of the option, for the error message. Raises BadInputError.
    """
    duration = re.fullmatch(r"(\d+)([smhdw])", text, re.ASCII)
    try:
        if duration:
            return now - timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        time = datetime.fromisoformat(text)
        return time if time.tzinfo else time.astimezone()
    except (ValueError, OverflowError):
        valid = "30m, 6h, 2d, 1w, or a date such as 2026-03-01 or 2026-03-01T10:30"
        raise BadInputError(f"{option}: {text!r} is not a time (valid: {valid})") from None
