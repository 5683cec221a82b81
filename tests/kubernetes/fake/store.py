"""All objects of the cluster, the counter of its revisions, and the bounded history that watches read."""

import threading
from collections import deque
from dataclasses import dataclass

from tests.kubernetes.fake.objects import copy_json
from tests.kubernetes.fake.resources import Json, Resource

HISTORY_LENGTH = 5000
"""Changes that watches can go back to unless a cluster says otherwise."""


@dataclass(frozen=True)
class Change:
    """One write. Nobody may change its objects."""

    revision: int
    type: str
    """Type of the event of a watch: ADDED, MODIFIED or DELETED."""
    resource: Resource
    object: Json
    previous: Json | None


class Store:
    """Objects by resource, namespace and name. One lock guards all; `changed` wakes those who wait."""

    def __init__(self, history_length: int = HISTORY_LENGTH) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.revision = 1
        """Number of the last write, which is the resourceVersion of its object."""
        self.compacted_revision = 1
        """Oldest revision that a watch may start from."""
        self._objects: dict[tuple[Resource, str, str], Json] = {}
        self._history: deque[Change] = deque()
        self.history_length = history_length
        self._subscribers: list[deque[Change]] = []

    def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Return a copy of an object."""
        with self.lock:
            return copy_json(self._objects.get((resource, namespace, name)))

    def list_all(self, resource: Resource, namespace: str | None = None) -> list[Json]:
        """Return copies of the objects of a kind, in the order of namespaces and names."""
        with self.lock:
            keys = [key for key in self._objects if key[0] == resource and (not namespace or key[1] == namespace)]
            return [copy_json(self._objects[key]) for key in sorted(keys, key=lambda key: key[1:])]

    def put(self, resource: Resource, thing: Json) -> Json:
        """Write an object, new or not, under the next revision. Return a copy with its resourceVersion."""
        with self.lock:
            key = _key(resource, thing)
            previous = self._objects.get(key)
            stored = copy_json(thing)
            self.revision += 1
            stored["metadata"]["resourceVersion"] = str(self.revision)
            self._objects[key] = stored
            self._note(Change(self.revision, "MODIFIED" if previous else "ADDED", resource, stored, previous))
            return copy_json(stored)

    def remove(self, resource: Resource, namespace: str, name: str) -> Json:
        """Remove an object. Return a copy of what the watches see: its last state under the next revision."""
        with self.lock:
            previous = self._objects.pop((resource, namespace, name))
            stored = copy_json(previous)
            self.revision += 1
            stored["metadata"]["resourceVersion"] = str(self.revision)
            self._note(Change(self.revision, "DELETED", resource, stored, previous))
            return copy_json(stored)

    def subscribe(self, revision: int) -> deque[Change]:
        """Return a queue with the known changes behind a revision, into which every later one is put too."""
        with self.lock:
            queue = deque(change for change in self._history if change.revision > revision)
            self._subscribers.append(queue)
            return queue

    def unsubscribe(self, queue: deque[Change]) -> None:
        """Put nothing more into a queue."""
        with self.lock:
            self._subscribers = [one for one in self._subscribers if one is not queue]

    def _note(self, change: Change) -> None:
        self._history.append(change)
        for queue in self._subscribers:
            queue.append(change)
        while len(self._history) > self.history_length:
            self.compacted_revision = self._history.popleft().revision
        self.changed.notify_all()


def _key(resource: Resource, thing: Json) -> tuple[Resource, str, str]:
    metadata = thing["metadata"]
    return resource, metadata.get("namespace", ""), metadata["name"]
