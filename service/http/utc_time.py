"""Times in requests: ISO 8601, converted to UTC."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator
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


def _parse_filter_time(value: Any) -> datetime:
    try:
        time = datetime.fromisoformat(value)
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        if not MIN_TIME <= aware <= MAX_TIME:
            raise ValueError
        return aware.astimezone(UTC)
    except (TypeError, ValueError):
        message = f"should be a date or a time from {MIN_TIME:%Y} to {MAX_TIME:%Y}, such as 2026-01-31T12:00:00Z"
        raise PydanticCustomError("time", "{message}", {"message": message}) from None


UtcTime = Annotated[AwareDatetime, BeforeValidator(_parse_time)]
"""Type of a field that is a time; it names its zone."""
FilterTime = Annotated[AwareDatetime, BeforeValidator(_parse_filter_time)]
"""Type of a query parameter that is a date or a time, in UTC where it names no zone."""
