"""Checks of objects against the schemas: unknown fields, wrong types, missing fields."""

import re
from collections.abc import Iterator

from jsonschema_rs import ValidationError

from tests.kubernetes.fake.errors import bad_request, cause, invalid
from tests.kubernetes.fake.objects import copy_json
from tests.kubernetes.fake.resources import CONFIG_MAPS, EVENTS, LEASES, SECRETS, Json, Resource
from tests.kubernetes.fake.schemas import validator_of

Place = tuple[str | int, ...]


def check_types(resource: Resource, thing: Json) -> None:
    """Raise 400 where the object has a field of a wrong type."""
    for error in _iterate_errors(resource, thing):
        if error.kind.name in ("required", "additionalProperties"):
            continue
        place: Place = tuple(error.instance_path)
        found = _go_type(error.instance)
        # Go names the struct that has the field; here it is always the whole object.
        field = ".".join(step for step in place if isinstance(step, str))
        if resource in (CONFIG_MAPS, SECRETS) and place[0] == "data":
            field = "data"
        wanted = [one for one in error.message.rpartition(" of type")[2].split('"')[1::2] if one != "null"]
        why = f"json: cannot unmarshal {found} into Go struct field {resource.kind}.{field} of type {'/'.join(wanted)}"
        raise bad_request(f"{_unhandled(resource)}: {why}")


def check_micro_times(resource: Resource, thing: Json) -> None:
    """Raise 400 where a time that must have microseconds does not have them."""
    places: dict[Resource, tuple[Json, tuple[str, ...]]] = {
        LEASES: (thing.get("spec") or {}, ("acquireTime", "renewTime")),
        EVENTS: (thing, ("eventTime",)),
    }
    part, names = places.get(resource, ({}, ()))
    for name in names:
        text = part.get(name)
        if text is not None and _MICRO_TIME.fullmatch(text) is None:
            rest = text[19:] or '"'
            layout = "2006-01-02T15:04:05.000000Z07:00"
            why = f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as ".000000"'
            raise bad_request(f"{_unhandled(resource)}: {why}")


_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")


def check_required(resource: Resource, thing: Json, name: str) -> None:
    """Raise 422 where the object lacks a field."""
    causes = [
        cause("FieldValueRequired", "Required value", dotted((*error.instance_path, error.kind.as_dict()["property"])))
        for error in _iterate_errors(resource, thing)
        if error.kind.name == "required"
    ]
    if causes:
        raise invalid(resource, name, causes)


def _iterate_errors(resource: Resource, thing: Json) -> Iterator[ValidationError]:
    validator = validator_of(resource.api_version, resource.kind)
    return iter(()) if validator is None else iter(validator.iter_errors(thing))


def _unhandled(resource: Resource) -> str:
    return f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'


def _go_type(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return {dict: "object", list: "array"}.get(type(value), "string")


def refuse_unknown_fields(resource: Resource, thing: Json) -> None:
    """Raise 400 where the object has fields that its schema does not know."""
    unknown = [dotted((*place, name)) for place, name in _unknown_fields(resource, thing)]
    if unknown:
        listed = ", ".join(f'unknown field "{field}"' for field in unknown)
        raise bad_request(f"{_unhandled(resource)}: strict decoding error: {listed}")


def drop_unknown_fields(resource: Resource, thing: Json) -> tuple[Json, list[str]]:
    """Return the object without fields that its schema does not know, and a warning for each."""
    kept = copy_json(thing)
    warnings: list[str] = []
    for place, name in _unknown_fields(resource, thing):
        inner = kept
        for step in place:
            inner = inner[step]  # type: ignore[index]
        inner.pop(name, None)
        warnings.append(f'unknown field "{dotted((*place, name))}"')
    return kept, warnings


def _unknown_fields(resource: Resource, thing: Json) -> list[tuple[Place, str]]:
    found: list[tuple[Place, str]] = []
    for error in _iterate_errors(resource, thing):
        if error.kind.name == "additionalProperties":
            found += [(tuple(error.instance_path), name) for name in error.kind.as_dict()["unexpected"]]
    return found


def dotted(place: Place) -> str:
    """Return a place as Kubernetes writes it: `spec.containers[0].name`."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.lstrip(".")
