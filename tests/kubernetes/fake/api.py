"""Verbs of the API server on its store. What a test plays calls them directly, clients call them through HTTP."""

import random
import uuid
from collections.abc import Callable
from typing import Any

from tests.kubernetes.fake import deletion
from tests.kubernetes.fake.clock import Clock
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.errors import already_exists, not_found
from tests.kubernetes.fake.objects import copy_json, is_deleting, is_terminal, set_condition
from tests.kubernetes.fake.resources import JOBS, PODS, Catalogue, Json, Resource
from tests.kubernetes.fake.store import Store

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
EVICTION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
Change = Callable[[Json], Json | None]


class Api:
    """Create, read, change and delete. Nothing is checked or admitted: a real server does that."""

    def __init__(self, store: Store, catalogue: Catalogue, clock: Clock) -> None:
        self.store = store
        self.catalogue = catalogue
        self.clock = clock
        self._random = random.Random(0)

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """Return an object. Raises 404."""
        found = self.store.get(resource, namespace, name)
        if found is None:
            raise not_found(resource, name)
        return found

    def find(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Return an object; None if absent."""
        return self.store.get(resource, namespace, name)

    def list_all(self, resource: Resource, namespace: str | None = None) -> list[Json]:
        """Return all objects of a kind, in the order of their names."""
        return self.store.list_all(resource, namespace)

    def random_suffix(self, length: int = 5) -> str:
        """Return letters for a generated name."""
        return "".join(self._random.choice(SUFFIX_LETTERS) for _ in range(length))

    def create(self, resource: Resource, namespace: str, body: Json) -> Json:
        """Create an object. Raises 409."""
        thing: Json = copy_json({"apiVersion": resource.api_version, "kind": resource.kind, **body})
        metadata: Json = thing["metadata"]
        if resource.is_namespaced:
            metadata["namespace"] = namespace
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = self.clock.timestamp()
        if resource in (PODS, JOBS):
            thing["status"] = {"phase": "Pending"} if resource == PODS else {}
        with self.store.lock:
            if self.find(resource, namespace, metadata["name"]) is not None:
                raise already_exists(resource, metadata["name"])
            return self.store.put(resource, thing)

    def merge(self, resource: Resource, namespace: str, name: str, patch: Json) -> Json:
        """Apply a merge patch to an object. Raises 404."""
        return self.modify(resource, namespace, name, lambda old: _merge(old, patch))

    def modify(self, resource: Resource, namespace: str, name: str, change: Change) -> Json:
        """Read an object, change it in place or return another, and write it, in one step. Raises 404."""
        with self.store.lock:
            old = self.get(resource, namespace, name)
            changed = copy_json(old)
            changed = change(changed) or changed
            return old if changed == old else self.store.put(resource, changed)

    def modify_status(self, resource: Resource, thing: Json, change: Callable[[Json], None]) -> Json:
        """Change the newest status of an object in place. Raises 404."""
        metadata: Json = thing["metadata"]
        return self.modify(resource, metadata.get("namespace", ""), metadata["name"], change)

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions | None = None) -> Json:
        """Delete an object. Return its last state. Raises 404 and 409."""
        with self.store.lock:
            thing = self.get(resource, namespace, name)
            return deletion.delete(self.store, self.clock, resource, thing, options or DeleteOptions())

    def evict(self, pod: Json, options: DeleteOptions) -> None:
        """Delete a pod through the eviction API, which notes the disruption in its status."""
        self.disrupt(pod, EVICTION, options)

    def disrupt(self, pod: Json, condition: Json, options: DeleteOptions | None = None) -> None:
        """Note in the status of a pod why the cluster ends it, and delete it."""
        metadata: Json = pod["metadata"]
        with self.store.lock:
            if not is_terminal(pod) and not is_deleting(pod):
                self.modify_status(PODS, pod, lambda found: set_condition(found, condition, self.clock.timestamp()))
            self.delete(PODS, metadata["namespace"], metadata["name"], options)


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
