"""Paths and methods of requests as calls of verbs on resources."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.kubernetes.fake.errors import PageNotFoundError, method_not_allowed, unknown_resource
from tests.kubernetes.fake.resources import NAMESPACES, Catalogue, Resource

DOCUMENT_PATHS = re.compile(
    r"/|/version|/livez|/readyz|/healthz|/api|/apis|/api/v1|/apis/[^/]+|/apis/[^/]+/[^/]+|/openapi/v[23].*"
)
"""Paths that are no resources."""
_NAME_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


@dataclass(frozen=True)
class Call:
    """One request as the API server understands it."""

    method: str
    path: str
    query: dict[str, str]
    verb: str
    """Verb as RBAC counts it; the method in lower case for a path that is no resource."""
    resource: Resource | None = None
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def group(self) -> str:
        return self.resource.group if self.resource else ""

    @property
    def resource_name(self) -> str:
        """Name with its subresource, as rules of RBAC have it: "pods/log"."""
        if self.resource is None:
            return ""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


def parse_call(method: str, target: str, catalogue: Catalogue) -> Call:
    """Return the call of a request. Raises PageNotFoundError for an unknown group, 404 and 405 else."""
    parts = urlsplit(target)
    path, query = parts.path.rstrip("/") or "/", dict(parse_qsl(parts.query, keep_blank_values=True))
    if DOCUMENT_PATHS.fullmatch(path):
        return Call(method, path, query, method.lower())
    steps = [unquote(step) for step in path.strip("/").split("/")]
    if steps[0] == "api":
        group, version, rest = "", steps[1], steps[2:]
    elif steps[0] == "apis" and len(steps) > 3:
        group, version, rest = steps[1], steps[2], steps[3:]
    else:
        raise PageNotFoundError(path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in NAMESPACES.subresources:
        namespace, rest = rest[1], rest[2:]
    if catalogue.describe_version(group, version) is None:
        raise PageNotFoundError(path)
    resource = catalogue.find(group, version, rest[0])
    if resource is None or len(rest) > 3:
        raise unknown_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in resource.subresources:
        raise unknown_resource()
    verb = _verb_of(method, query, name, subresource)
    if resource == NAMESPACES and name:
        namespace = name
    if verb in ("list", "watch", "deletecollection"):
        selected = re.search(r"(?:^|,)metadata\.name==?([^,]+)", query.get("fieldSelector", ""))
        name = selected[1] if selected else ""
    return Call(method, path, query, verb, resource, subresource, namespace, name)


def _verb_of(method: str, query: dict[str, str], name: str, subresource: str) -> str:
    if subresource and method == "POST":
        return "create"
    verb = (_NAME_VERBS if name else _COLLECTION_VERBS).get(method)
    if verb is None:
        raise method_not_allowed()
    if verb == "list" and query.get("watch", "").lower() in ("1", "true"):
        return "watch"
    return verb
