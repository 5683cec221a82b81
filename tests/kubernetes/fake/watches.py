"""Streams of changes, as watches of clients see them."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tests.kubernetes.fake.errors import ApiError, expired
from tests.kubernetes.fake.objects import copy_json
from tests.kubernetes.fake.resources import Json, Resource
from tests.kubernetes.fake.selectors import Matcher
from tests.kubernetes.fake.store import Change, Store

IDLE_SECONDS = 0.05
"""Pause after which a stream says that nothing has come, so that its reader can look whether the client is there."""


@dataclass(frozen=True)
class WatchOptions:
    """Query of a watch. start: revision of the list that it goes on from."""

    resource: Resource
    namespace: str
    matches: Matcher
    start: int
    allows_bookmarks: bool
    timeout_seconds: float


class WatchStream:
    """One watch. It holds a place among the changes from its making on, so that it misses none."""

    def __init__(self, store: Store, options: WatchOptions) -> None:
        self._store = store
        self._options = options
        self._is_closed = False
        with store.lock:
            self._is_expired = options.start < store.compacted_revision
            self._queue: deque[Change] = store.subscribe(options.start)

    def events(self) -> Iterator[Json | None]:
        """Yield events as they come, and None whenever none has come for a while."""
        options, end_at = self._options, time.monotonic() + self._options.timeout_seconds
        try:
            if self._is_expired:
                message = f"too old resource version: {options.start} ({self._store.compacted_revision})"
                yield error_event(expired(message))
                return
            revision = options.start
            while not self._is_closed and (pause := min(IDLE_SECONDS, end_at - time.monotonic())) > 0:
                changes, revision = self._wait(pause)
                yield from filter(None, map(self._to_event, changes))
                if not changes:
                    yield None
            if options.allows_bookmarks:
                # So do real servers shortly before a watch ends.
                yield _bookmark(options.resource, revision)
        finally:
            self._store.unsubscribe(self._queue)

    def _wait(self, seconds: float) -> tuple[list[Change], int]:
        """Return the changes since the last call, and the revision up to which all are known."""
        with self._store.changed:
            if not self._queue:
                self._store.changed.wait(seconds)
            changes = list(self._queue)
            self._queue.clear()
            return changes, self._store.revision

    def close(self) -> None:
        """End the stream."""
        self._is_closed = True

    def _to_event(self, change: Change) -> Json | None:
        """Return what the watch sees of a change: an object that leaves the selection is deleted for it."""
        options = self._options
        if change.resource != options.resource:
            return None
        if options.namespace and change.object["metadata"].get("namespace") != options.namespace:
            return None
        was_selected = change.previous is not None and options.matches(change.previous)
        is_selected = change.type != "DELETED" and options.matches(change.object)
        if is_selected:
            return {"type": "MODIFIED" if was_selected else "ADDED", "object": copy_json(change.object)}
        if not was_selected:
            return None
        # As it was last selected, but with the revision of the change: so does the real cache.
        gone = copy_json(change.object if change.type == "DELETED" else change.previous)
        gone["metadata"]["resourceVersion"] = change.object["metadata"]["resourceVersion"]
        return {"type": "DELETED", "object": gone}


def _bookmark(resource: Resource, revision: int) -> Json:
    marked = {"kind": resource.kind, "apiVersion": resource.api_version}
    return {"type": "BOOKMARK", "object": {**marked, "metadata": {"resourceVersion": str(revision)}}}


def error_event(error: ApiError) -> Json:
    """Return the event that ends a running watch with a failure."""
    return {"type": "ERROR", "object": error.to_status()}
