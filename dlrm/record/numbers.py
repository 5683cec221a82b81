"""Types of numbers in records. JSON and databases have no number that is not finite."""

import math
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field


def replace_non_finite(value: Any) -> Any:
    """Return `value` with null in place of every number in it that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: replace_non_finite(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in cast("list[Any]", value)]
    return value


Measure = Annotated[float | None, BeforeValidator(replace_non_finite)]
"""Type of a number that was measured; null if it is unknown or not finite."""
Count = Annotated[int, Field(ge=0, lt=2**63)]
"""Type of a count that a database can store."""
FreeJson = Annotated[dict[str, Any], BeforeValidator(replace_non_finite)]
"""Type of any JSON object; its numbers that are not finite become null."""
MAX_TIME = 253_370_764_800.0
"""First second of the year 9999 since the epoch: a later time may lie in no calendar, in some time zone."""
Time = Annotated[float, Field(ge=0, lt=MAX_TIME)]
"""Type of a time in seconds since the epoch, which every calendar has."""
