"""Query parameters of a route: each one must be known, and comes once unless it may be repeated."""

import difflib
from collections import Counter
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from fastapi.dependencies.models import Dependant
from starlette.datastructures import QueryParams

from dlrm.config import FieldError
from service.http.problems import invalid_request


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
