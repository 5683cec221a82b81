"""Creation and deletion of a Job's pods."""

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.controllers.job_indexes import COMPLETION_INDEX, is_indexed
from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.events import EventRecorder
from tests.kubernetes.fake.objects import controller_reference, copy_json
from tests.kubernetes.fake.resources import PODS, Json

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
"""Finalizer by which pods stay until their Job has counted them."""


class JobPods:
    """Pods of Jobs, made and removed in the name of their controller."""

    def __init__(self, api: Api, events: EventRecorder) -> None:
        self._api = api
        self._events = events
        self._failed_at: dict[str, float] = {}

    def create(self, job: Json, index: int | None, annotations: dict[str, str]) -> bool:
        """Create one pod, with annotations of its own. Return whether the server allowed it."""
        try:
            pod = self._api.create(PODS, job["metadata"]["namespace"], _make_pod(job, index, annotations))
        except ApiError as error:
            causes = (error.details or {}).get("causes") or []
            is_ending = any(one["reason"] == "NamespaceTerminating" for one in causes)
            # One event an instant, whatever the number of tries: a round that changes nothing else is the last.
            if not is_ending and self._failed_at.get(job["metadata"]["uid"]) != self._api.clock.now():
                self._failed_at[job["metadata"]["uid"]] = self._api.clock.now()
                self._events.record(job, "FailedCreate", f"Error creating: {error.message}", is_warning=True)
            return False
        self._events.record(job, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        return True

    def delete(self, job: Json, pod: Json) -> None:
        """Delete one pod."""
        metadata: Json = pod["metadata"]
        if self._api.find(PODS, metadata["namespace"], metadata["name"]) is None:
            return
        self._api.delete(PODS, metadata["namespace"], metadata["name"])
        self._events.record(job, "SuccessfulDelete", f"Deleted pod: {metadata['name']}")

    def release(self, pod: Json) -> None:
        """Remove the tracking finalizer of a pod that is still there."""
        metadata: Json = pod["metadata"]
        if self._api.find(PODS, metadata["namespace"], metadata["name"]) is None:
            return

        def change(found: Json) -> None:
            finalizers: list[str] = found["metadata"].get("finalizers") or []
            found["metadata"]["finalizers"] = [one for one in finalizers if one != TRACKING_FINALIZER]

        self._api.modify(PODS, metadata["namespace"], metadata["name"], change)


def is_tracked(pod: Json) -> bool:
    """Whether a pod waits to be counted."""
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or [])


def _make_pod(job: Json, index: int | None, annotations: dict[str, str]) -> Json:
    template: Json = copy_json(job["spec"]["template"])
    metadata: Json = template.setdefault("metadata", {})
    spec: Json = template["spec"]
    name: str = job["metadata"]["name"]
    metadata["generateName"] = f"{name}-"
    metadata["ownerReferences"] = [controller_reference(job)]
    metadata["finalizers"] = [*(metadata.get("finalizers") or []), TRACKING_FINALIZER]
    if is_indexed(job):
        metadata["generateName"] = _generate_name(name, f"-{index}-")
        metadata.setdefault("annotations", {}).update({COMPLETION_INDEX: str(index), **annotations})
        metadata.setdefault("labels", {})[COMPLETION_INDEX] = str(index)
        spec["hostname"] = f"{name}-{index}"
        for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
            _add_index_variable(container)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _generate_name(name: str, suffix: str) -> str:
    """Return the beginning of a pod's name, short enough that the index stays in it."""
    return name[: 58 - len(suffix)] + suffix


def _add_index_variable(container: Json) -> None:
    variables: list[Json] = container.setdefault("env", [])
    if any(one["name"] == "JOB_COMPLETION_INDEX" for one in variables):
        return
    path = f"metadata.labels['{COMPLETION_INDEX}']"
    field = {"apiVersion": "v1", "fieldPath": path}
    variables.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}})
