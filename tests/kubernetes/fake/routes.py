"""Paths and methods of requests as calls of verbs on resources."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.resources import Catalogue, Resource

_NAME_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)


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
    """Return the call of a request. Raises ApiError if no resource has such a method."""
    parts = urlsplit(target)
    path, query = parts.path.rstrip("/"), dict(parse_qsl(parts.query, keep_blank_values=True))
    match = _PATH.fullmatch(path)
    resource = catalogue.find(match["group"] or "", match["version"], match["plural"]) if match else None
    if match is None or resource is None:
        return Call(method, path, query, method.lower())
    name, subresource = match["name"] or "", match["sub"] or ""
    verb = "create" if subresource and method == "POST" else (_NAME_VERBS if name else _COLLECTION_VERBS).get(method)
    if verb is None:
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    if verb == "list" and query.get("watch") == "true":
        verb = "watch"
    return Call(method, path, query, verb, resource, subresource, match["namespace"] or "", name)
