"""Streams of changes, as watches of clients see them."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tests.kubernetes.fake.errors import ApiError, expired
from tests.kubernetes.fake.objects import copy_json
from tests.kubernetes.fake.resources import JOBS, PODS, Json, Resource
from tests.kubernetes.fake.selectors import Matcher
from tests.kubernetes.fake.store import Change, Store

IDLE_SECONDS = 0.05
"""Pause after which a stream says that nothing has come, so that its reader can look whether the client is there."""


@dataclass(frozen=True)
class WatchOptions:
    """Query of a watch."""

    resource: Resource
    namespace: str
    matches: Matcher
    resource_version: str = ""
    allows_bookmarks: bool = False
    sends_initial_events: bool = False
    timeout_seconds: float | None = None


class WatchStream:
    """One watch. It holds a place among the changes from its making on, so that it misses none."""

    def __init__(self, store: Store, options: WatchOptions) -> None:
        self._store = store
        self._options = options
        self._closed = False
        self._wants_bookmark = False
        with store.lock:
            self._first = self._make_first_events()
            self._queue: deque[Change] = store.subscribe()

    def _make_first_events(self) -> list[Json]:
        options = self._options
        if options.sends_initial_events or options.resource_version in ("", "0"):
            # A watch from nowhere that allows bookmarks is told where the initial events end, asked or not.
            marks_end = options.allows_bookmarks and (options.sends_initial_events or not options.resource_version)
            events = [
                {"type": "ADDED", "object": thing}
                for thing in self._store.list_all(options.resource, options.namespace)
                if options.matches(thing)
            ]
            if marks_end:
                marks = {"annotations": {"k8s.io/initial-events-end": "true"}}
                events.append(_bookmark(options.resource, self._store.revision, marks))
            return events
        start = int(options.resource_version)
        if start < self._store.compacted_revision:
            message = f"too old resource version: {start} ({self._store.compacted_revision})"
            return [error_event(expired(message))]
        events = [self._to_event(change) for change in self._store.changes_after(start)]
        return [event for event in events if event]

    def events(self) -> Iterator[Json | None]:
        """Yield events as they come, and None whenever none has come for a while."""
        timeout = self._options.timeout_seconds
        end_at = None if timeout is None else time.monotonic() + timeout
        try:
            for event in self._first:
                yield event
                if event["type"] == "ERROR":
                    return
            while not self._closed and (end_at is None or time.monotonic() < end_at):
                yield from self._wait(end_at)
        finally:
            self._store.unsubscribe(self._queue)

    def _wait(self, end_at: float | None) -> Iterator[Json | None]:
        pause = IDLE_SECONDS if end_at is None else max(0.0, min(IDLE_SECONDS, end_at - time.monotonic()))
        with self._store.changed:
            if not self._queue and not self._wants_bookmark and not self._closed:
                self._store.changed.wait(pause)
            changes = list(self._queue)
            self._queue.clear()
            # All changes up to now are in hand, so that the bookmark may say so.
            wants_bookmark, self._wants_bookmark = self._wants_bookmark, False
            revision = self._store.revision
        for change in changes:
            if event := self._to_event(change):
                yield event
        if wants_bookmark and self._options.allows_bookmarks:
            yield _bookmark(self._options.resource, revision)
        if not changes:
            yield None

    def send_bookmark(self) -> None:
        """Have the stream send a bookmark, if its client allows them."""
        with self._store.changed:
            self._wants_bookmark = True
            self._store.changed.notify_all()

    def close(self) -> None:
        """End the stream as the server does when its time is over."""
        with self._store.changed:
            self._closed = True
            self._store.changed.notify_all()

    def _to_event(self, change: Change) -> Json | None:
        """Return what the watch is told of a change: one that leaves the selection is deleted for it."""
        options = self._options
        if change.resource != options.resource:
            return None
        if options.namespace and change.object["metadata"].get("namespace") != options.namespace:
            return None
        was_selected = change.previous is not None and options.matches(change.previous)
        is_selected = change.type != "DELETED" and options.matches(change.object)
        if is_selected:
            kind = "MODIFIED" if was_selected else "ADDED"
            return {"type": kind, "object": copy_json(change.object)}
        if not was_selected:
            return None
        # As it was last selected, but with the revision of the change: so does the real cache.
        gone = copy_json(change.object if change.type == "DELETED" else change.previous)
        gone["metadata"]["resourceVersion"] = change.object["metadata"]["resourceVersion"]
        return {"type": "DELETED", "object": gone}


def _bookmark(resource: Resource, revision: int, metadata: Json | None = None) -> Json:
    marked: Json = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(revision), **(metadata or {})},
    }
    # The rest is what Go writes of an empty struct.
    if resource == PODS:
        marked |= {"spec": {"containers": None}, "status": {}}
    elif resource == JOBS:
        template = {"metadata": {}, "spec": {"containers": None}}
        marked |= {"spec": {"template": template}, "status": {}}
    return {"type": "BOOKMARK", "object": marked}


def error_event(error: ApiError) -> Json:
    """Return the event in which a running watch is told of a failure."""
    return {"type": "ERROR", "object": error.to_status()}
