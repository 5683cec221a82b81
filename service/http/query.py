"""Query parameters of a route, each known and given once unless it may be repeated; times and labels in requests."""

import difflib
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, get_args, get_origin

from fastapi import Query
from fastapi.dependencies.models import Dependant
from pydantic import AwareDatetime, BeforeValidator
from pydantic_core import PydanticCustomError
from starlette.datastructures import QueryParams

from dlrm.config import FieldError
from service.http.problems import invalid_request

MIN_TIME, MAX_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(2999, 12, 31, tzinfo=UTC)
"""Range of the times of a filter."""


def list_parameters(dependant: Dependant) -> dict[str, bool]:
    """List the names of the query parameters of a route; the value is whether the parameter may be repeated."""
    parameters = {field.alias: _is_list(field.field_info.annotation) for field in dependant.query_params}
    for dependency in dependant.dependencies:
        parameters |= list_parameters(dependency)
    return parameters


def check_query(query: QueryParams, parameters: Mapping[str, bool]) -> None:
    """Raise ProblemError (422) if a parameter of `query` is unknown, or comes more often than it may."""
    counts = Counter(name for name, _ in query.multi_items())
    faults = [fault for name, count in counts.items() if (fault := _find_fault(name, count, parameters))]
    if faults:
        raise invalid_request(faults)


def _find_fault(name: str, count: int, parameters: Mapping[str, bool]) -> FieldError | None:
    if name not in parameters:
        nearest = difflib.get_close_matches(name, parameters, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        valid = ", ".join(sorted(parameters)) or "no parameters"
        return FieldError(name, f"is not a parameter of this path{hint}", valid)
    if count > 1 and not parameters[name]:
        return FieldError(name, f"is given {count} times", f"{name} once")
    return None


def _is_list(annotation: Any) -> bool:
    """Whether an annotation such as `list[str] | None` takes several values."""
    return get_origin(annotation) is list or any(_is_list(argument) for argument in get_args(annotation))


def parse_label(text: str, parameter: str = "label") -> tuple[str, str]:
    """Parse a label of a query parameter into its name and value. Raises ProblemError (422) if it has no value."""
    name, separator, value = text.partition(":")
    if not separator:
        raise invalid_request([FieldError(parameter, f"{text!r} has no value", "name:value, such as team:ads")])
    return name, value


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


STORABLE = r"^[^\x00]*$"
"""Pattern of text that every database compares with: PostgreSQL refuses NUL characters."""
MAX_INT32 = 2**31 - 1
"""Largest number that an integer column takes."""
Rank = Annotated[int, Query(ge=0, le=MAX_INT32)]
UtcTime = Annotated[AwareDatetime, BeforeValidator(_parse_time)]
"""Type of a field that is a time; it names its zone."""
FilterTime = Annotated[AwareDatetime, BeforeValidator(_parse_filter_time)]
"""Type of a query parameter that is a date or a time, in UTC if it names no zone."""
LabelFilter = Annotated[list[str] | None, Query(description="name:value; may be repeated; all must match")]
"""Type of a query parameter with the labels that a job must all have."""
