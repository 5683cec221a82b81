"""Answers of the API server to calls that are allowed and not made to fail."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.errors import ApiError, PageNotFoundError, bad_request, method_not_allowed
from tests.kubernetes.fake.lists import Lister, initial_events_error, make_list_document, matcher_of, parse_revision
from tests.kubernetes.fake.patches import APPLY_PATCH
from tests.kubernetes.fake.rbac import Authoriser
from tests.kubernetes.fake.resources import ACCESS_REVIEWS, JOBS, Json, Resource
from tests.kubernetes.fake.routes import Call
from tests.kubernetes.fake.watches import WatchOptions, WatchStream

LogSource = Callable[[Json, dict[str, str]], Iterator[bytes | None]]
"""Function that yields the log of a pod's container; None where nothing has come."""
ORPHANING_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "2026-06-01T00:00:00Z",
    "goVersion": "go1.26.10",
    "compiler": "gc",
    "platform": "linux/amd64",
}


@dataclass
class Response:
    """Answer to a request: a document, a text, or a stream."""

    code: int
    document: Json | None = None
    text: str = ""
    watch: WatchStream | None = None
    log: Iterator[bytes | None] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the body."""
        if self.document is None:
            return self.text.encode()
        return json.dumps(self.document, separators=(",", ":")).encode()


def error_response(error: ApiError) -> Response:
    """Return the answer to a request that fails."""
    headers: dict[str, str] = {}
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(error.retry_after_seconds)
    return Response(error.code, error.to_status(), headers=headers)


class Dispatcher:
    """Caller of the verbs that requests ask for."""

    def __init__(self, api: Api, log_source: LogSource, authoriser: Authoriser) -> None:
        self._api = api
        self._authoriser = authoriser
        self._lister = Lister(api.store)
        self._log_source = log_source

    def answer(self, call: Call, body: bytes, content_type: str) -> Response:
        """Carry a call out. Raises ApiError and PageNotFoundError."""
        if call.resource is None:
            return self._document(call)
        if call.resource == ACCESS_REVIEWS:
            return Response(201, self._authoriser.review(_parse(body, call.resource.kind)))
        if call.subresource in ("eviction", "log"):
            return self._answer_subresource(call, call.resource, body)
        response = self._carry_out(call, call.resource, body, content_type)
        warnings = self._api.take_warnings()
        if (
            call.resource == JOBS
            and call.verb in ("delete", "deletecollection")
            and self._orphans_by_default(call, body)
        ):
            warnings.append(ORPHANING_WARNING)
        for warning in warnings:
            escaped = warning.replace('"', '\\"')
            response.headers["Warning"] = f'299 - "{escaped}"'
        return response

    def _orphans_by_default(self, call: Call, body: bytes) -> bool:
        return DeleteOptions.parse(call.query, _parse(body) if body else None).propagation_policy is None

    def _carry_out(self, call: Call, resource: Resource, body: bytes, content_type: str) -> Response:
        if call.verb == "get":
            return Response(200, self._api.get(resource, _namespace(call, resource), call.name))
        if call.verb == "list":
            return Response(200, self._lister.make_list(resource, call))
        if call.verb == "watch":
            return self._watch(call, resource)
        if call.verb == "patch":
            return self._patch(call, resource, body, content_type)
        if call.verb == "update":
            return self._update(call, resource, body)
        if call.subresource:
            raise method_not_allowed()
        carry_out = {"create": self._create, "delete": self._delete, "deletecollection": self._delete_collection}
        return carry_out[call.verb](call, resource, body)

    def _document(self, call: Call) -> Response:
        catalogue = self._api.catalogue
        steps = call.path.strip("/").split("/")
        document: Json | None = None
        if call.path == "/version":
            document = dict(VERSION)
        elif call.path in ("/livez", "/readyz", "/healthz"):
            return Response(200, text="ok")
        elif call.path == "/api":
            document = {"kind": "APIVersions", "versions": ["v1"]}
        elif call.path == "/apis":
            document = catalogue.describe_groups()
        elif steps[0] == "apis" and len(steps) == 2:
            document = catalogue.describe_group(steps[1])
        elif steps[0] in ("api", "apis"):
            document = catalogue.describe_version("" if steps[0] == "api" else steps[1], steps[-1])
        if document is None:
            raise PageNotFoundError(call.path)
        return Response(200, document)

    def _watch(self, call: Call, resource: Resource) -> Response:
        query = call.query
        timeout = query.get("timeoutSeconds") or "0"
        revision = query.get("resourceVersion", "")
        parse_revision(query)
        sends_initial_events = query.get("sendInitialEvents", "").lower() in ("1", "true")
        if sends_initial_events and query.get("resourceVersionMatch") != "NotOlderThan":
            raise initial_events_error()
        options = WatchOptions(
            resource,
            _namespace(call, resource),
            matcher_of(resource, query),
            revision,
            query.get("allowWatchBookmarks", "").lower() in ("1", "true"),
            sends_initial_events,
            # 0 is for none, as in the real server, which then ends the watch after half an hour or more.
            float(timeout) or None,
        )
        return Response(200, watch=WatchStream(self._api.store, options))

    def _create(self, call: Call, resource: Resource, body: bytes) -> Response:
        namespace = _namespace(call, resource)
        created = self._api.create(resource, namespace, _parse(body, resource.kind), **_write_options(call))
        return Response(201, created)

    def _update(self, call: Call, resource: Resource, body: bytes) -> Response:
        namespace = _namespace(call, resource)
        options = _write_options(call)
        return Response(
            200,
            self._api.replace(resource, namespace, call.name, _parse(body, resource.kind), call.subresource, **options),
        )

    def _patch(self, call: Call, resource: Resource, body: bytes, content_type: str) -> Response:
        patch = yaml.safe_load(body) if content_type == APPLY_PATCH else _parse(body)
        if content_type == APPLY_PATCH and not call.query.get("fieldManager"):
            raise bad_request(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
            )
        namespace, options = _namespace(call, resource), _write_options(call)
        thing, is_new = self._api.patch(
            resource, namespace, call.name, patch, content_type, call.subresource, **options
        )
        return Response(201 if is_new else 200, thing)

    def _delete(self, call: Call, resource: Resource, body: bytes) -> Response:
        options = DeleteOptions.parse(call.query, _parse(body) if body else None)
        thing, is_gone = self._api.delete(resource, _namespace(call, resource), call.name, options)
        if not is_gone or resource.answers_with_object:
            return Response(200, thing)
        details = {"name": call.name, "group": resource.group, "kind": resource.plural, "uid": thing["metadata"]["uid"]}
        details = {key: value for key, value in details.items() if value}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Response(200, status)

    def _delete_collection(self, call: Call, resource: Resource, body: bytes) -> Response:
        options = DeleteOptions.parse(call.query, _parse(body) if body else None)
        matches = matcher_of(resource, call.query)
        with self._api.store.lock:
            doomed = [one for one in self._api.list_all(resource, _namespace(call, resource)) if matches(one)]
            for thing in doomed:
                metadata: Json = thing["metadata"]
                self._api.delete(resource, metadata.get("namespace", ""), metadata["name"], options)
            revision = str(self._api.store.revision)
        return Response(200, make_list_document(resource, doomed, {"resourceVersion": revision}))

    def _answer_subresource(self, call: Call, resource: Resource, body: bytes) -> Response:
        pod = self._api.get(resource, call.namespace, call.name)
        if call.subresource == "log" and call.verb == "get":
            return Response(200, log=self._log_source(pod, call.query))
        if call.subresource == "eviction" and call.verb == "create":
            given: Json = _parse(body, "Eviction")
            options = DeleteOptions.parse(call.query, given.get("deleteOptions"))
            self._api.evict(pod, options)
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
            return Response(201, status)
        raise method_not_allowed()


def _namespace(call: Call, resource: Resource) -> str:
    return call.namespace if resource.is_namespaced else ""


def _write_options(call: Call) -> dict[str, Any]:
    return {"field_validation": call.query.get("fieldValidation"), "is_dry_run": call.query.get("dryRun") == "All"}


def _parse(body: bytes, kind: str = "DeleteOptions") -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        unrecognized = f"the object provided is unrecognized (must be of type {kind})"
        raise bad_request(f"{unrecognized}: couldn't get version/kind; json parse error: {error}") from error
