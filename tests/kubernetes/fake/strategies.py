"""Fields that a kind's API sets itself at creation, and those that an update may not change."""

from tests.kubernetes.fake import job_rules
from tests.kubernetes.fake.clock import Clock
from tests.kubernetes.fake.errors import cause
from tests.kubernetes.fake.object_rules import find_data_update_errors, find_pod_update_errors, wrong_value
from tests.kubernetes.fake.objects import copy_json, is_deleting
from tests.kubernetes.fake.resources import (
    CONFIG_MAPS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    SECRETS,
    SERVICES,
    VOLUME_CLAIMS,
    Json,
    Resource,
)

SYSTEM_METADATA = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generateName",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
)
"""Members of metadata that nobody writes but the server."""


SCHEDULING_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
"""Condition of a pod that somebody holds back from the scheduler."""


def prepare_for_create(resource: Resource, thing: Json, clock: Clock) -> None:
    """Reset the status of a new object and set what its kind begins with."""
    if resource.has_status and resource != NODES:
        thing.pop("status", None)
    if resource == JOBS:
        job_rules.generate_selector(thing)
        thing["status"] = {}
    elif resource == PODS:
        status: Json = {"phase": "Pending", "qosClass": quality_of_service(thing)}
        thing["status"] = status
        if thing["spec"].get("schedulingGates"):
            status["conditions"] = [{**SCHEDULING_GATED, "lastTransitionTime": clock.timestamp()}]
    elif resource == NAMESPACES:
        name: str = thing["metadata"].get("name", "")
        thing["metadata"].setdefault("labels", {}).setdefault("kubernetes.io/metadata.name", name)
        thing["spec"] = {"finalizers": ["kubernetes"]}
        thing["status"] = {"phase": "Active"}
    elif resource == SERVICES:
        spec: Json = thing["spec"]
        if spec["type"] != "ExternalName":
            uid: str = thing["metadata"]["uid"]
            spec.setdefault("clusterIP", f"10.96.{int(uid[:2], 16)}.{int(uid[2:4], 16)}")
            spec["clusterIPs"] = [spec["clusterIP"]]
        thing["status"] = {"loadBalancer": {}}
    elif resource == VOLUME_CLAIMS:
        thing["status"] = {"phase": "Pending"}
    elif resource == QUOTAS:
        thing["status"] = {}
    elif resource == NODES:
        thing.setdefault("spec", {})
        thing.setdefault("status", {})


def quality_of_service(pod: Json) -> str:
    """Return the QoS class."""
    sides = ("cpu", "memory")
    containers: list[Json] = pod["spec"].get("containers") or []
    resources: list[Json] = [container.get("resources") or {} for container in containers]
    if not any(name in (one.get(kind) or {}) for one in resources for kind in ("limits", "requests") for name in sides):
        return "BestEffort"
    if all(
        name in (one.get("limits") or {}) and one["limits"][name] == (one.get("requests") or {}).get(name)
        for one in resources
        for name in sides
    ):
        return "Guaranteed"
    return "Burstable"


def find_errors(resource: Resource, thing: Json) -> list[Json]:
    """Return the causes for which a new object of a kind is refused."""
    return job_rules.find_job_errors(thing) if resource == JOBS else []


def drop_empty_metadata(metadata: Json) -> None:
    """Drop collections of metadata that are empty, which the server does not keep."""
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if not metadata.get(name):
            metadata.pop(name, None)


def keep_system_fields(resource: Resource, thing: Json, old: Json, subresource: str) -> None:
    """Restore in an updated object what this endpoint may not write."""
    metadata, found = thing["metadata"], old["metadata"]
    for name in SYSTEM_METADATA:
        if name in found:
            metadata[name] = found[name]
        else:
            metadata.pop(name, None)
    metadata.pop("managedFields", None)
    drop_empty_metadata(metadata)
    if subresource == "status":
        status = copy_json(thing.get("status"))
        for name in [*thing, *old]:
            if name not in ("metadata", "status"):
                thing[name] = copy_json(old.get(name))
        for name in [name for name, value in thing.items() if value is None]:
            del thing[name]
        if "ownerReferences" in found:
            metadata["ownerReferences"] = copy_json(found["ownerReferences"])
        if status is not None:
            thing["status"] = status
    elif resource.has_status and "status" in old:
        thing["status"] = copy_json(old["status"])
    elif resource.has_status:
        thing.pop("status", None)
    if resource == NAMESPACES and subresource != "finalize":
        thing["spec"] = copy_json(old["spec"])


def find_update_errors(resource: Resource, thing: Json, old: Json) -> list[Json]:
    """Return the causes for which an update is refused."""
    causes: list[Json] = []
    old_finalizers: list[str] = old["metadata"].get("finalizers") or []
    added = [one for one in thing["metadata"].get("finalizers") or [] if one not in old_finalizers]
    if is_deleting(old) and added:
        listed = ", ".join(f'"{one}"' for one in added)
        message = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{listed}}}"
        )
        causes.append(cause("FieldValueForbidden", message, "metadata.finalizers"))
    if resource == JOBS:
        causes += job_rules.find_job_update_errors(thing, old) or job_rules.find_job_errors(thing)
        causes += job_rules.find_job_status_errors(thing, old)
    elif resource == PODS:
        causes += find_pod_update_errors(thing, old)
    elif resource in (SECRETS, CONFIG_MAPS):
        causes += find_data_update_errors(thing, old)
    return causes


def find_replace_errors(resource: Resource, body: Json) -> list[Json]:
    """Return the cause for which a body without a resourceVersion is refused, where its kind needs one."""
    if (resource == LEASES or resource.is_custom) and not body["metadata"].get("resourceVersion"):
        return [wrong_value("metadata.resourceVersion", 0, "must be specified for an update")]
    return []
