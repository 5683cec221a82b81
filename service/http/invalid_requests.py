"""Sentences on requests that do not fit their route: each names the field at fault, and what would be valid."""

import difflib
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from annotated_types import Ge, Le
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dlrm.config import FieldError, format_count, list_constraints

NUMBER_KINDS = frozenset(
    {"int_parsing", "int_parsing_size", "int_type", "int_from_float", "greater_than_equal", "less_than_equal"}
)
OBJECT_KINDS = frozenset({"dict_type", "model_type", "model_attributes_type"})
_TYPES: Mapping[type[Any], str] = {
    bool: "true or false",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    type(None): "null",
}
_NAME = "1 to 63 letters, digits, dots, dashes and underscores; the first and the last one a letter or a digit"
_PREFIX = re.compile("^(Value error, |(Input|String|List|Dictionary) (?=should))")
"""Beginning of pydantic's own sentences, with the kind of value that it checked."""


def convert_errors(errors: Sequence[Mapping[str, Any]], route: object) -> list[FieldError]:
    """Convert the validation errors of a request to `route`.

    Values of the body are not shown, because they may be secrets.
    """
    return [_convert(error, route if isinstance(route, APIRoute) else None) for error in errors]


def _convert(error: Mapping[str, Any], route: APIRoute | None) -> FieldError:
    """Convert one error. Its field is named as in the request, without the leading "body"."""
    source, *names = [str(part) for part in error["loc"]]
    # A query parameter that may be repeated has one name, whichever of its values is invalid.
    field = ".".join(names[:1] if source == "query" else names) or source
    place = _find_place(route, source, names)
    shown = "this" if source == "body" else reprlib.repr(error["input"])
    context: Mapping[str, Any] = error.get("ctx", {})
    kind = error["type"]
    if kind == "extra_forbidden":
        return _describe_unknown(field, names, route)
    if kind == "missing":
        return FieldError(field, "is required, but missing")
    if kind in OBJECT_KINDS:
        given = next((name for kind, name in _TYPES.items() if isinstance(error["input"], kind)), "another value")
        return FieldError(field, f"should be an object, not {given}", _describe(place) or _describe_object(place))
    if context.get("expected"):
        # Not pydantic's message: it would list the valid values a second time.
        return FieldError(field, f"{reprlib.repr(error['input'])} is not one of the valid values", context["expected"])
    if kind in NUMBER_KINDS:
        return FieldError(field, f"{shown} is not a valid number", _describe_range(place, context))
    if kind == "string_pattern_mismatch":
        # The description of a parameter says what is valid, and that of a field what it means.
        return FieldError(field, f"{shown} is not valid", (source != "body" and _describe(place)) or _NAME)
    if kind in ("string_too_long", "too_long"):
        noun = "character" if kind == "string_too_long" else "item"
        return FieldError(field, "is too long", f"at most {format_count(context['max_length'], noun)}")
    if kind == "string_too_short":
        return FieldError(field, "is too short", f"at least {format_count(context['min_length'], 'character')}")
    return FieldError(field, _PREFIX.sub("", error["msg"]))


def _describe_unknown(field: str, names: Sequence[str], route: APIRoute | None) -> FieldError:
    valid = sorted(_list_body_fields(route)) if len(names) == 1 else []
    nearest = difflib.get_close_matches(names[-1], valid, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return FieldError(field, f"is not a field of this body{hint}", ", ".join(valid))


def _list_body_fields(route: APIRoute | None) -> Mapping[str, FieldInfo]:
    return _list_fields(route.body_field.field_info if route and route.body_field else None)


def _list_fields(place: FieldInfo | None) -> Mapping[str, FieldInfo]:
    model = place.annotation if place else None
    return model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}


def _describe_object(place: FieldInfo | None) -> str:
    """Describe an object by its fields, required ones first."""
    fields = _list_fields(place)
    names = sorted(fields, key=lambda name: not fields[name].is_required())
    return f"an object with the fields {', '.join(names)}" if names else '{"field": value, …}'


def _find_place(route: APIRoute | None, source: str, names: Sequence[str]) -> FieldInfo | None:
    """Find the parameter, the body or the field of the body that an error is about; None if it has no name."""
    if route is None:
        return None
    if source == "body":
        body = route.body_field.field_info if route.body_field else None
        return _list_body_fields(route).get(names[0]) if names else body
    return next((info for name, info in _list_parameters(route.dependant, source) if [name] == names[:1]), None)


def _list_parameters(dependant: Dependant, source: str) -> Iterator[tuple[str, FieldInfo]]:
    parameters = {"query": dependant.query_params, "header": dependant.header_params, "path": dependant.path_params}
    for parameter in parameters.get(source, []):
        yield parameter.alias, parameter.field_info
    for dependency in dependant.dependencies:
        yield from _list_parameters(dependency, source)


def _describe(place: FieldInfo | None) -> str:
    return (place.description or "") if place else ""


def _describe_range(place: FieldInfo | None, context: Mapping[str, Any]) -> str:
    """Describe the whole numbers valid at a place, or within the bound that an error itself names."""
    constraints = list(list_constraints(place.annotation, place.metadata)) if place else []
    least = next((found.ge for found in constraints if isinstance(found, Ge)), context.get("ge"))
    largest = next((found.le for found in constraints if isinstance(found, Le)), context.get("le"))
    if least is None and largest is None:
        return "a whole number"
    if largest is None:
        return f"a whole number, at least {least}"
    return f"a whole number up to {largest}" if least is None else f"a whole number from {least} to {largest}"
