"""Deletion of objects: at once, or of a pod on a node after its grace period."""

from dataclasses import dataclass

from tests.kubernetes.fake.clock import Clock, format_time, parse_time
from tests.kubernetes.fake.errors import precondition_failed
from tests.kubernetes.fake.objects import copy_json, is_deleting, is_terminal
from tests.kubernetes.fake.resources import PODS, Json, Resource
from tests.kubernetes.fake.store import Store


@dataclass(frozen=True)
class DeleteOptions:
    """Wishes of whoever deletes."""

    propagation_policy: str | None = None
    """Fate of dependents: Foreground, Background or Orphan. The fake takes any as Background."""
    grace_period_seconds: int | None = None
    uid: str | None = None

    @staticmethod
    def parse(body: Json) -> "DeleteOptions":
        """Return the options of a request."""
        uid = (body.get("preconditions") or {}).get("uid")
        return DeleteOptions(body.get("propagationPolicy"), body.get("gracePeriodSeconds"), uid)


def delete(store: Store, clock: Clock, resource: Resource, thing: Json, options: DeleteOptions) -> Json:
    """Delete an object, or mark a pod as being deleted. Return its last state."""
    metadata: Json = thing["metadata"]
    if options.uid not in (None, metadata["uid"]):
        raise precondition_failed(resource, metadata["name"], str(options.uid), metadata["uid"])
    grace_seconds = _find_grace_seconds(resource, thing, options)
    if not grace_seconds:
        return store.remove(resource, metadata.get("namespace", ""), metadata["name"])
    marked = copy_json(thing)
    _mark(marked["metadata"], clock, grace_seconds, is_first=not is_deleting(thing))
    return thing if marked == thing else store.put(resource, marked)


def _find_grace_seconds(resource: Resource, thing: Json, options: DeleteOptions) -> int:
    if resource != PODS or not thing["spec"].get("nodeName") or is_terminal(thing):
        return 0
    if options.grace_period_seconds is None:
        return thing["spec"].get("terminationGracePeriodSeconds", 30)
    return options.grace_period_seconds


def _mark(metadata: Json, clock: Clock, grace_seconds: int, *, is_first: bool) -> None:
    """Write until when a pod may live. Grace is only ever shortened, and counts from the first deletion."""
    asked_at = clock.now()
    if not is_first:
        old_seconds = metadata["deletionGracePeriodSeconds"]
        if grace_seconds >= old_seconds:
            return
        asked_at = parse_time(metadata["deletionTimestamp"]) - old_seconds
    metadata["deletionTimestamp"] = format_time(max(clock.now(), asked_at + grace_seconds))
    metadata["deletionGracePeriodSeconds"] = grace_seconds
