"""Times in requests: ISO 8601 with a time zone, converted to UTC."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator
from pydantic_core import PydanticCustomError


def _parse_time(value: Any) -> datetime:
    try:
        time = datetime.fromisoformat(value)
        if time.tzinfo is None:
            raise ValueError
        return time.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise PydanticCustomError("time", "should be a time with its zone, such as 2026-01-31T12:00:00Z") from None


UtcTime = Annotated[AwareDatetime, BeforeValidator(_parse_time)]
"""Type of a field or query parameter that is a time."""
