"""Patches of the four kinds that clients send."""

from typing import Any

from tests.kubernetes.fake.errors import ApiError, bad_request
from tests.kubernetes.fake.objects import copy_json
from tests.kubernetes.fake.resources import Json, Resource
from tests.kubernetes.fake.schemas import resolve, root_schema

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


def apply_patch(resource: Resource, thing: Json, patch: Any, content_type: str) -> Json:
    """Return the patched object. Raise 415 for what the resource does not accept."""
    if content_type == JSON_PATCH:
        return _apply_operations(copy_json(thing), patch)
    if content_type == MERGE_PATCH:
        return _merge(thing, patch)
    if content_type == APPLY_PATCH or (content_type == STRATEGIC_PATCH and not resource.is_custom):
        return _merge_strategically(thing, patch, root_schema(resource))
    raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def _merge(old: Any, patch: Any) -> Any:
    """Return RFC 7386's merge: null removes, lists are replaced."""
    if not isinstance(patch, dict):
        return copy_json(patch)
    merged: Json = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def _merge_strategically(old: Any, patch: Any, schema: Json) -> Any:
    """Return the merge in which lists are merged by the key that the schema names."""
    if not isinstance(patch, dict):
        return copy_json(patch)
    if patch.get("$patch") == "replace":
        return {key: copy_json(value) for key, value in patch.items() if key != "$patch"}
    merged: Json = dict(old) if isinstance(old, dict) else {}
    properties: Json = schema.get("properties") or {}
    for key, value in patch.items():
        if key.startswith(("$setElementOrder/", "$retainKeys", "$patch")):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [item for item in merged.get(name) or [] if item not in value]
            continue
        field: Json = properties.get(key) or schema.get("additionalProperties") or {}
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, list):
            merged[key] = _merge_lists(merged.get(key) or [], value, field)
        elif isinstance(value, dict):
            merged[key] = _merge_strategically(merged.get(key), value, resolve(field) if field else {})
        else:
            merged[key] = value
    return merged


def _merge_lists(old: list[Any], patch: list[Any], field: Json) -> list[Any]:
    if "merge" not in str(field.get("x-kubernetes-patch-strategy", "")):
        return copy_json(patch)
    key = field.get("x-kubernetes-patch-merge-key")
    if key is None:
        return old + [item for item in patch if item not in old]
    schema = resolve(field["items"])
    if any(item.get("$patch") == "replace" for item in patch):
        return [copy_json(item) for item in patch if "$patch" not in item]
    if any(key not in item for item in patch):
        raise bad_request(f"map: {patch} does not contain declared merge key: {key}")
    kept = {item[key]: item for item in old}
    removed = [item[key] for item in patch if item.get("$patch") == "delete"]
    patched = [
        _merge_strategically(kept.get(item[key], {}), item, schema) for item in patch if item[key] not in removed
    ]
    touched = {item[key] for item in patch}
    rest = [item for item in old if item[key] not in touched]
    return _interleave(patched, rest, [item[key] for item in old], key)


def _interleave(patched: list[Json], rest: list[Json], order: list[Any], key: str) -> list[Json]:
    """Return both lists as one, in the old order; items that are new go in front of what is left of the rest."""
    merged: list[Json] = []
    patched, rest = list(patched), list(rest)
    while patched and rest:
        is_old = patched[0][key] in order
        goes_later = is_old and order.index(rest[0][key]) < order.index(patched[0][key])
        merged.append(rest.pop(0) if goes_later else patched.pop(0))
    return merged + patched + rest


def _apply_operations(thing: Json, operations: Any) -> Json:
    """Return the object after RFC 6902's operations."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    for operation in operations:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        try:
            parent: Any = thing
            for step in steps[:-1]:
                parent = parent[int(step)] if isinstance(parent, list) else parent[step]
            _apply_operation(parent, steps[-1], operation)
        except (KeyError, IndexError, ValueError) as error:
            message = "the server rejected our request due to an error in our request"
            raise ApiError(422, "Invalid", message, {}) from error
    return thing


def _apply_operation(parent: Any, last: str, operation: Json) -> None:
    verb, value = operation["op"], copy_json(operation.get("value"))
    if isinstance(parent, list):
        place = len(parent) if last == "-" else int(last)
        if verb == "add":
            parent.insert(place, value)
            return
        key: Any = place
    else:
        key = last
    if verb == "add":
        parent[key] = value
    elif verb == "replace":
        _ = parent[key]
        parent[key] = value
    elif verb == "remove":
        del parent[key]
    elif verb == "test":
        if parent[key] != value:
            raise ValueError("testing value failed")
    else:
        raise bad_request(f"the fake knows no operation {verb!r} of JSON patches")
