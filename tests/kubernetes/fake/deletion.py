"""Deletion of objects: grace, finalizers and the fate of dependents."""

from dataclasses import dataclass
from typing import Any

from tests.kubernetes.fake.clock import Clock, format_time, parse_time
from tests.kubernetes.fake.errors import bad_request, precondition_failed
from tests.kubernetes.fake.objects import copy_json, is_deleting, is_terminal
from tests.kubernetes.fake.resources import JOBS, NAMESPACES, PODS, Json, Resource
from tests.kubernetes.fake.store import Store

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
"""Finalizers by which the garbage collector is told what to do with dependents."""


@dataclass(frozen=True)
class DeleteOptions:
    """Wishes of whoever deletes."""

    propagation_policy: str | None = None
    """Fate of dependents: Foreground, Background or Orphan."""
    grace_period_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    is_dry_run: bool = False

    @staticmethod
    def parse(query: dict[str, str], body: Any) -> "DeleteOptions":
        """Return the options of a request; those of the body count before those of the query."""
        given: Json = body if isinstance(body, dict) else {}
        kind = given.get("kind", "DeleteOptions")
        if kind != "DeleteOptions":
            raise bad_request(f'no kind "{kind}" is registered for the internal version of group "meta.k8s.io"')
        policy = given.get("propagationPolicy") or query.get("propagationPolicy")
        if policy not in (None, "Foreground", "Background", "Orphan"):
            raise bad_request(f"invalid DeleteOptions: propagationPolicy: {policy}")
        grace = given.get("gracePeriodSeconds")
        if grace is None and "gracePeriodSeconds" in query:
            grace = int(query["gracePeriodSeconds"])
        conditions: Json = given.get("preconditions") or {}
        is_dry_run = "All" in (given.get("dryRun") or []) or query.get("dryRun") == "All"
        return DeleteOptions(policy, grace, conditions.get("uid"), conditions.get("resourceVersion"), is_dry_run)


def delete(store: Store, clock: Clock, resource: Resource, thing: Json, options: DeleteOptions) -> tuple[Json, bool]:
    """Delete an object, or mark it as being deleted. Return its last state and whether it is gone."""
    _check_preconditions(resource, thing, options)
    metadata: Json = thing["metadata"]
    grace_seconds = _grace_seconds(resource, thing, options)
    finalizers = _finalizers(resource, thing, options)
    waits_for_content = resource == NAMESPACES and bool(thing["spec"].get("finalizers"))
    if not finalizers and not grace_seconds and not waits_for_content:
        if options.is_dry_run:
            return thing, True
        if resource == PODS:
            # Pods always show first that they are being deleted, even where they go at once.
            _mark(thing, clock, 0, [])
            store.put(resource, thing)
        return store.remove(resource, metadata.get("namespace", ""), metadata["name"]), True
    changed = copy_json(thing)
    _mark(changed, clock, grace_seconds, finalizers)
    if resource == NAMESPACES:
        changed["status"]["phase"] = "Terminating"
        changed["metadata"].pop("deletionGracePeriodSeconds", None)
    if changed == thing or options.is_dry_run:
        return changed, False
    return store.put(resource, changed), False


def _check_preconditions(resource: Resource, thing: Json, options: DeleteOptions) -> None:
    metadata: Json = thing["metadata"]
    for given, found, name in (
        (options.uid, metadata["uid"], "UID"),
        (options.resource_version, metadata["resourceVersion"], "ResourceVersion"),
    ):
        if given is not None and given != found:
            what = "deleted and then recreated" if name == "UID" else "modified"
            why = (
                f"the {name} in the precondition ({given}) does not match the {name} in record ({found}). "
                f"The object might have been {what}"
            )
            raise precondition_failed(resource, metadata["name"], why)


def _grace_seconds(resource: Resource, thing: Json, options: DeleteOptions) -> int:
    if resource != PODS:
        return 0
    if not thing["spec"].get("nodeName") or is_terminal(thing):
        return 0
    if options.grace_period_seconds is None:
        return thing["spec"].get("terminationGracePeriodSeconds", 0)
    return options.grace_period_seconds if options.grace_period_seconds >= 0 else 1


def _finalizers(resource: Resource, thing: Json, options: DeleteOptions) -> list[str]:
    """Return the finalizers that the object has once its deletion has begun."""
    old: list[str] = thing["metadata"].get("finalizers") or []
    policy = options.propagation_policy
    if policy is None:
        if ORPHAN in old or FOREGROUND in old:
            return old
        # Jobs of batch/v1 keep what kubectl did before there was a garbage collector.
        policy = "Orphan" if resource == JOBS else "Background"
    kept = [one for one in old if one not in (ORPHAN, FOREGROUND)]
    added = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(policy, [])
    return kept + added


def _mark(thing: Json, clock: Clock, grace_seconds: int, finalizers: list[str]) -> None:
    metadata: Json = thing["metadata"]
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    ends_at = clock.now() + grace_seconds
    if is_deleting(thing):
        old_grace_seconds = metadata.get("deletionGracePeriodSeconds", 0)
        # Grace is only ever shortened, and counts from when deletion was asked for first.
        if grace_seconds >= old_grace_seconds:
            return
        asked_at = parse_time(metadata["deletionTimestamp"]) - old_grace_seconds
        ends_at = max(clock.now(), asked_at + grace_seconds)
    elif metadata.get("generation"):
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = format_time(ends_at)
    metadata["deletionGracePeriodSeconds"] = grace_seconds


def is_removable(resource: Resource, thing: Json) -> bool:
    """Whether an object that is being deleted waits for nothing any more."""
    metadata: Json = thing["metadata"]
    if not is_deleting(thing) or metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not (resource == NAMESPACES and thing["spec"].get("finalizers"))
