"""Times in requests: ISO 8601, converted to UTC."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator
from pydantic_core import PydanticCustomError

MIN_TIME, MAX_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(2999, 12, 31, tzinfo=UTC)
"""Range of the times of a filter."""


def _parse_time(value: Any) -> datetime:
    try:
        time = datetime.fromisoformat(value)
        if time.tzinfo is None:
            raise ValueError
        return time.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise PydanticCustomError("time", "should be a time with its zone, such as 2026-01-31T12:00:00Z") from None


def _check_filter_time(time: datetime) -> datetime:
    """Return `time` in UTC, which it is where it names no zone. Raises ValueError where it is out of range."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    if not MIN_TIME <= aware <= MAX_TIME:
        raise ValueError(f"is not a time from {MIN_TIME:%Y} to {MAX_TIME:%Y}")
    return aware.astimezone(UTC)


UtcTime = Annotated[AwareDatetime, BeforeValidator(_parse_time)]
"""Type of a field that is a time; it names its zone."""
FilterTime = Annotated[datetime, AfterValidator(_check_filter_time)]
"""Type of a query parameter that is a date or a time, by which something is looked for."""
