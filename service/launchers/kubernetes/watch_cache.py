"""Copy of the objects of one kind that is kept up to date by a watch: one for all jobs."""

import random
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Self

import structlog

from service.launchers.kubernetes.api import ApiError, KubernetesApi
from service.launchers.kubernetes.objects import Object, get_parts, get_text

log = structlog.get_logger(__name__)

WATCH_SECONDS = 45
"""Seconds after which the server ends a watch, and this process begins the next one: a connection that was cut without
a word is noticed soon after."""
SILENCE_SECONDS = WATCH_SECONDS + 10.0
"""Seconds without an event after which a watch counts as broken."""
STALE_SECONDS = 90.0
"""Seconds without a word of the server after which the copy counts as out of date."""
FIRST_LIST_SECONDS = 1.0
"""Seconds that the start of a watch waits for its first list: what is not listed yet would count as out of sight."""
LIST_AGAIN_SECONDS = 15.0
"""Seconds without a word of the server after which all is listed again: lists may work where watches fail."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 10.0
MAX_DELETED_GROUPS = 1000
"""Groups whose deleted objects are kept; objects of ended attempts are forgotten sooner."""
PAGE_SIZE = 500
"""Objects of one page of a list."""

_FORBIDDEN, _GONE = 403, 410


class WatchCache:
    """Objects of one kind and one selector, by name. A thread lists them once, and then watches them.

    After a break the watch goes on from the last known version of the collection; where the server no longer has the
    changes since then (410 Gone), all are listed again.
    """

    def __init__(
        self,
        api: KubernetesApi,
        path: str,
        selection: Mapping[str, str],
        get_group: Callable[[Object], Hashable] = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
        *,
        keeps_deleted: bool = False,
    ) -> None:
        """Call `on_change`, in the thread, after every change.

        path: of the collection, such as /api/v1/nodes. selection: parameters that select objects, such as
        `labelSelector`. get_group: returns what `list_group` finds an object by.
        keeps_deleted: for `list_deleted`.
        """
        self._api = api
        self._path = path
        self._query = dict(selection)
        self._get_group = get_group
        self._on_change = on_change
        self._keeps_deleted = keeps_deleted
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}
        self._groups: dict[Hashable, dict[str, Object]] = {}
        self._deleted: dict[Hashable, dict[str, Object]] = {}
        self._version: str | None = None
        """Version of the collection from which the watch goes on; None: a list is needed."""
        self._seen_at = 0.0
        """Time of the last word of the server, on the monotonic clock; 0 before the first list."""
        self._fault = "not listed yet"
        self._status = 0
        """Status of the last answer that was no success; 0 before the first one, and after a list."""
        self._is_started = False
        self._has_answer = threading.Event()
        """Whether the first list, or a first error, has come."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {path.rpartition('/')[2]}", daemon=True)

    def start(self) -> Self:
        """Start the thread, and wait a moment for its first list; harmless if it runs already. Return this copy."""
        with self._lock:
            is_new, self._is_started = not self._is_started, True
        if is_new:
            self._thread.start()
            self._has_answer.wait(FIRST_LIST_SECONDS)
        return self

    def stop(self) -> None:
        """Stop watching; the thread ends with the next word of the server."""
        self._stopping.set()

    @property
    def fault(self) -> str | None:
        """Reason why the copy is not to be believed; None if it is."""
        with self._lock:
            is_stale = self._seen_at == 0.0 or time.monotonic() - self._seen_at > STALE_SECONDS
            return self._fault if is_stale else None

    @property
    def is_refused(self) -> bool:
        """Whether the server has refused to list the objects."""
        return self._status == _FORBIDDEN

    def get(self, name: str) -> Object | None:
        with self._lock:
            return self._objects.get(name)

    def list_all(self) -> list[Object]:
        with self._lock:
            return list(self._objects.values())

    def list_group(self, group: Hashable) -> list[Object]:
        with self._lock:
            return list(self._groups.get(group, {}).values())

    def list_deleted(self, group: Hashable) -> list[Object]:
        """List the last states of objects of a group that were deleted since the watch began, until `forget`."""
        with self._lock:
            return list(self._deleted.get(group, {}).values())

    def forget(self, group: Hashable) -> None:
        """Forget the deleted objects of a group."""
        with self._lock:
            self._deleted.pop(group, None)

    def note(self, changed: Object) -> None:
        """Take note of an object as the server has just answered it, ahead of the watch."""
        with self._lock:
            name = get_text(changed, "metadata", "name")
            known = self._objects.get(name)
            if known is None or _get_version(known) < _get_version(changed):
                self._put(changed)

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            try:
                if self._version is None:
                    self._list()
                self._watch()
                pause = FIRST_PAUSE_SECONDS
            except ApiError as error:
                if self._stopping.is_set():
                    return
                self._has_answer.set()
                self._status = error.status
                if error.status != _GONE and self._fault != str(error):
                    self._fault = str(error)
                    log.warning("kubernetes_watch_failed", path=self._path, status=error.status, error=str(error))
                if error.status == _GONE or time.monotonic() - self._seen_at > LIST_AGAIN_SECONDS:
                    self._version = None
                wait = error.retry_after_seconds or pause * random.uniform(0.7, 1.3)
                self._stopping.wait(min(wait, MAX_PAUSE_SECONDS))
                pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _list(self) -> None:
        objects: dict[str, Object] = {}
        query = {**self._query, "limit": str(PAGE_SIZE)}
        while True:
            page = self._api.request("GET", self._path, query)
            objects |= {get_text(found, "metadata", "name"): found for found in get_parts(page, "items")}
            if not (token := get_text(page, "metadata", "continue")):
                break
            query = {**query, "continue": token}
        version = get_text(page, "metadata", "resourceVersion")
        with self._lock:
            newer = {name: known for name, known in self._objects.items() if _get_version(known) > int(version or 0)}
            self._objects, self._groups = {}, {}
            for known in (objects | newer).values():
                self._put(known)
            self._version = version
            self._seen_at = time.monotonic()
            self._status = 0
        self._has_answer.set()
        self._on_change()

    def _watch(self) -> None:
        query = {
            **self._query,
            "resourceVersion": self._version or "",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        for event in self._api.watch(self._path, query, SILENCE_SECONDS):
            self._apply(event)
            if self._stopping.is_set():
                return
        with self._lock:
            self._seen_at = time.monotonic()

    def _apply(self, event: Object) -> None:
        changed = event["object"]
        with self._lock:
            self._seen_at = time.monotonic()
            self._version = get_text(changed, "metadata", "resourceVersion")
            if event["type"] == "BOOKMARK":
                return
            name = get_text(changed, "metadata", "name")
            known = self._objects.get(name)
            if event["type"] == "DELETED":
                if known is None or get_text(known, "metadata", "uid") == get_text(changed, "metadata", "uid"):
                    self._remove(name)
                    if self._keeps_deleted:
                        self._keep_deleted(changed)
            elif known is None or _get_version(known) <= _get_version(changed):
                self._put(changed)
        self._on_change()

    def _put(self, changed: Object) -> None:
        name = get_text(changed, "metadata", "name")
        self._remove(name)
        self._objects[name] = changed
        self._groups.setdefault(self._get_group(changed), {})[name] = changed

    def _keep_deleted(self, changed: Object) -> None:
        """Keep the last state of a deleted object: what has ended may be gone before anybody has looked."""
        self._deleted.setdefault(self._get_group(changed), {})[get_text(changed, "metadata", "name")] = changed
        if len(self._deleted) > MAX_DELETED_GROUPS:
            del self._deleted[next(iter(self._deleted))]

    def _remove(self, name: str) -> None:
        if (known := self._objects.pop(name, None)) is not None:
            group = self._get_group(known)
            del self._groups[group][name]
            if not self._groups[group]:
                del self._groups[group]


def _get_version(known: Object) -> int:
    """Return the version of an object as a number: versions of one kind may be compared (KEP-5504)."""
    version = get_text(known, "metadata", "resourceVersion")
    return int(version) if version.isdecimal() else 0
