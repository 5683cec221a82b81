"""Answers of the fake API server to the calls of the launcher."""

import json

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.errors import ApiError, expired
from tests.kubernetes.fake.resources import Json, Resource
from tests.kubernetes.fake.responses import Response
from tests.kubernetes.fake.routes import Call
from tests.kubernetes.fake.selectors import make_matcher
from tests.kubernetes.fake.watches import WatchOptions, WatchStream

MERGE_PATCH = "application/merge-patch+json"


class Dispatcher:
    """Caller of the verbs that requests ask for."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pages: dict[str, tuple[int, list[Json]]] = {}
        """Revisions and rests of lists that clients read page by page, by their tokens."""

    def answer(self, call: Call, body: bytes, content_type: str) -> Response:
        """Carry a call out. Raises ApiError."""
        resource, given = call.resource, json.loads(body or b"{}")
        if resource is None:
            return self._describe_group(call.path)
        if call.verb == "create":
            return Response(201, self._api.create(resource, call.namespace, given))
        if call.verb == "list":
            return Response(200, self._make_list(resource, call))
        if call.verb == "watch":
            return Response(200, watch=self._watch(resource, call))
        if call.verb == "patch" and content_type == MERGE_PATCH:
            return Response(200, self._api.merge(resource, call.namespace, call.name, given))
        if call.verb == "delete":
            options = DeleteOptions.parse(given)
            return Response(200, self._api.delete(resource, call.namespace, call.name, options))
        raise ApiError(405, "MethodNotAllowed", f"the fake knows no {call.verb} of {call.resource_name}")

    def _describe_group(self, path: str) -> Response:
        """Return the document of /apis/<group>."""
        version = self._api.catalogue.find_version(path.removeprefix("/apis/"))
        if version is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return Response(200, {"kind": "APIGroup", "apiVersion": "v1", "preferredVersion": {"version": version}})

    def _make_list(self, resource: Resource, call: Call) -> Json:
        """Make one page of a list. Its pages show the state of the first one."""
        token, limit = call.query.get("continue", ""), int(call.query.get("limit") or 0)
        with self._api.store.lock:
            if token:
                revision, items = self._pages[token]
                if revision < self._api.store.compacted_revision:
                    raise expired("The provided continue parameter is too old to display a consistent list result.")
            else:
                matches = make_matcher(call.query)
                revision = self._api.store.revision
                items = [one for one in self._api.store.list_all(resource, call.namespace) if matches(one)]
        metadata = {"resourceVersion": str(revision)}
        if rest := items[limit:] if limit else []:
            metadata["continue"] = f"page {len(self._pages) + 1}"
            self._pages[metadata["continue"]] = revision, rest
        # Members of a list do not say what they are.
        kept = items[: len(items) - len(rest)]
        kept = [{key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in kept]
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": kept,
        }

    def _watch(self, resource: Resource, call: Call) -> WatchStream:
        options = WatchOptions(
            resource,
            call.namespace,
            make_matcher(call.query),
            int(call.query["resourceVersion"]),
            call.query.get("allowWatchBookmarks") == "true",
            float(call.query["timeoutSeconds"]),
        )
        return WatchStream(self._api.store, options)
