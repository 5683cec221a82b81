"""Small questions to objects as they are in JSON."""

import marshal
from typing import Any

from tests.kubernetes.fake.resources import Json


def copy_json(value: Any) -> Any:
    """Return a deep copy of what JSON can hold."""
    # Some ten times as fast as a loop of Python: much is copied, again and again.
    return marshal.loads(marshal.dumps(value))


def labels_of(thing: Json) -> dict[str, str]:
    """Return the labels."""
    return thing["metadata"].get("labels") or {}


def find_condition(thing: Json, condition_type: str) -> Json | None:
    """Return the condition of a type; None if absent."""
    conditions: list[Json] = thing.get("status", {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == condition_type), None)


def has_condition(thing: Json, condition_type: str, status: str = "True") -> bool:
    """Whether a condition has a status."""
    condition = find_condition(thing, condition_type)
    return condition is not None and condition["status"] == status


def set_condition(thing: Json, condition: Json, now: str) -> None:
    """Put a condition into the status; lastTransitionTime changes with its status alone."""
    conditions: list[Json] = thing.setdefault("status", {}).setdefault("conditions", [])
    for place, old in enumerate(conditions):
        if old["type"] == condition["type"]:
            changed_at = old.get("lastTransitionTime", now) if old["status"] == condition["status"] else now
            conditions[place] = {**condition, "lastTransitionTime": changed_at}
            return
    conditions.append({**condition, "lastTransitionTime": now})


def is_terminal(pod: Json) -> bool:
    """Whether a pod has ended."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_deleting(thing: Json) -> bool:
    """Whether an object waits for its removal."""
    return "deletionTimestamp" in thing["metadata"]


def owner_uids(thing: Json) -> set[str]:
    """Return the uids of the owners of an object."""
    return {one["uid"] for one in thing["metadata"].get("ownerReferences") or []}


def controller_reference(owner: Json) -> Json:
    """Return the reference by which `owner` controls an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
