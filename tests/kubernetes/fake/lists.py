"""Lists of objects, whole or page by page."""

import base64
import json
from dataclasses import dataclass

from tests.kubernetes.fake.errors import ApiError, bad_request, cause, expired
from tests.kubernetes.fake.resources import Json, Resource
from tests.kubernetes.fake.routes import Call
from tests.kubernetes.fake.selectors import Matcher, parse_fields, parse_labels
from tests.kubernetes.fake.store import Store

EXPIRED_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def matcher_of(resource: Resource, query: dict[str, str]) -> Matcher:
    """Return whether an object is selected by the query of a list or watch."""
    has_labels = parse_labels(query.get("labelSelector", ""))
    has_fields = parse_fields(resource, query.get("fieldSelector", ""))
    return lambda thing: has_labels(thing) and has_fields(thing)


def parse_revision(query: dict[str, str]) -> int:
    """Return the resourceVersion of a query, 0 without one. Raises 400."""
    text = query.get("resourceVersion") or "0"
    if not text.isdigit():
        why = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: resourceVersion: {why}")
    return int(text)


def initial_events_error() -> ApiError:
    """Return the failure of a watch that asks for initial events in a wrong way."""
    why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    causes = [cause("FieldValueForbidden", why, "resourceVersionMatch")]
    message = f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: {why}'
    return ApiError(422, "Invalid", message, {"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes})


@dataclass(frozen=True)
class _Snapshot:
    """Rest of a list that a client reads page by page."""

    revision: int
    items: list[Json]


class Lister:
    """Lists of one store. Pages of one list show the state of its first page."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: dict[str, _Snapshot] = {}

    def make_list(self, resource: Resource, call: Call) -> Json:
        """Return the list that a call asks for. Raises 410 for a token that is too old."""
        query = call.query
        namespace = call.namespace if resource.is_namespaced else ""
        matches = matcher_of(resource, query)
        limit = int(query.get("limit") or 0)
        with self._store.lock:
            if token := query.get("continue"):
                snapshot = self._continue(token)
            else:
                self._check_revision(query)
                items = [thing for thing in self._store.list_all(resource, namespace) if matches(thing)]
                snapshot = _Snapshot(self._store.revision, items)
            return self._page(resource, snapshot, limit, is_selected=bool(query.get("labelSelector")))

    def _check_revision(self, query: dict[str, str]) -> None:
        revision = parse_revision(query)
        if query.get("resourceVersionMatch") == "Exact" and revision < self._store.compacted_revision:
            raise expired("The resourceVersion for the provided list is too old.")
        if revision > self._store.revision:
            message = f"Timeout: Too large resource version: {revision}, current: {self._store.revision}"
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            raise ApiError(504, "Timeout", message, {"causes": causes}, retry_after_seconds=1)

    def _continue(self, token: str) -> _Snapshot:
        snapshot = self._snapshots.get(token)
        if snapshot is None:
            raise bad_request("invalid continue token: continue key is not valid: illegal base64 data at input byte 4")
        if snapshot.revision < self._store.compacted_revision:
            raise expired(EXPIRED_TOKEN)
        return snapshot

    def _page(self, resource: Resource, snapshot: _Snapshot, limit: int, is_selected: bool) -> Json:
        items = snapshot.items[:limit] if limit else snapshot.items
        rest = snapshot.items[len(items) :]
        metadata: Json = {"resourceVersion": str(snapshot.revision)}
        if rest:
            position = {"v": "meta.k8s.io/v1", "rv": snapshot.revision, "start": f"{rest[0]['metadata']['name']}\0"}
            token = base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")
            self._snapshots[token] = _Snapshot(snapshot.revision, rest)
            metadata["continue"] = token
            if not is_selected:
                metadata["remainingItemCount"] = len(rest)
        return make_list_document(resource, items, metadata)


def make_list_document(resource: Resource, items: list[Json], metadata: Json) -> Json:
    """Return the document of a list. Items of built-in kinds, which are structs of Go, do not say what they are."""
    if not resource.is_custom:
        items = [{key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in items]
    return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata, "items": items}
