"""Checks of objects against the schemas: unknown fields, wrong types, missing fields."""

from tests.kubernetes.fake.errors import bad_request, cause, invalid
from tests.kubernetes.fake.objects import copy_json
from tests.kubernetes.fake.resources import Json, Resource
from tests.kubernetes.fake.schemas import validator_of

Place = tuple[str | int, ...]


def check_schema(resource: Resource, thing: Json, name: str) -> None:
    """Raise where the object has a field of a wrong type (400) or lacks one (422). Unknown fields are not its task."""
    validator = validator_of(resource.api_version, resource.kind)
    if validator is None:
        return
    causes: list[Json] = []
    for error in validator.iter_errors(thing):
        place: Place = tuple(error.instance_path)
        kind = error.kind.as_dict()
        if error.kind.name == "required":
            field = dotted((*place, kind["property"]))
            causes.append(cause("FieldValueRequired", "Required value", field))
        elif error.kind.name != "additionalProperties":
            described = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
            raise bad_request(f"{described}: json: cannot unmarshal field {dotted(place)}: {error.message}")
    if causes:
        raise invalid(resource, name, causes)


def refuse_unknown_fields(resource: Resource, thing: Json) -> None:
    """Raise 400 where the object has fields that its schema does not know."""
    unknown = [dotted((*place, name)) for place, name in _unknown_fields(resource, thing)]
    if unknown:
        listed = ", ".join(f'unknown field "{field}"' for field in unknown)
        described = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise bad_request(f"{described}: strict decoding error: {listed}")


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
    validator = validator_of(resource.api_version, resource.kind)
    if validator is None:
        return []
    found: list[tuple[Place, str]] = []
    for error in validator.iter_errors(thing):
        if error.kind.name == "additionalProperties":
            found += [(tuple(error.instance_path), name) for name in error.kind.as_dict()["unexpected"]]
    return found


def dotted(place: Place) -> str:
    """Return a place as Kubernetes writes it: `spec.containers[0].name`."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.lstrip(".")
