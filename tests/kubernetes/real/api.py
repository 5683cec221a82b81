"""Verbs of a real API server, as tests and what they play call them."""

import random
from collections.abc import Callable
from typing import Any

from tests.kubernetes.fake.api import SUFFIX_LETTERS, Change
from tests.kubernetes.fake.clock import Clock
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.objects import copy_json
from tests.kubernetes.fake.resources import PODS, Catalogue, Json, Resource
from tests.kubernetes.real.connection import Connection

CONFLICT, NOT_FOUND = 409, 404


class RealApi:
    """Create, read, update and delete, within one namespace unless a call names another."""

    def __init__(self, connection: Connection, catalogue: Catalogue, clock: Clock, namespace: str) -> None:
        self.connection = connection
        self.catalogue = catalogue
        self.clock = clock
        self.namespace = namespace

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """Return an object. Raises 404."""
        return self.connection.request("GET", make_path(resource, namespace, name))

    def find(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Return an object or None."""
        try:
            return self.get(resource, namespace, name)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            return None

    def list_all(self, resource: Resource, namespace: str | None = None, selector: str = "") -> list[Json]:
        """Return all objects; selector: by labels."""
        path = make_path(resource, namespace or self.namespace)
        found = self.connection.request("GET", path, {"labelSelector": selector} if selector else None)
        # Members of a list do not say what they are.
        return [{"apiVersion": resource.api_version, "kind": resource.kind, **one} for one in found["items"]]

    def random_suffix(self, length: int = 5) -> str:
        """Return letters for a generated name."""
        return "".join(random.choice(SUFFIX_LETTERS) for _ in range(length))

    def create(self, resource: Resource, namespace: str, body: Json) -> Json:
        """Create an object. Raises ApiError."""
        named = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return self.connection.request("POST", make_path(resource, namespace), body=named)

    def modify(self, resource: Resource, namespace: str, name: str, change: Change, subresource: str = "") -> Json:
        """Read an object, change it in place or return another, and write it, until nobody comes in between."""
        path = make_path(resource, namespace, name)
        while True:
            old = self.connection.request("GET", path)
            changed = copy_json(old)
            changed = change(changed) or changed
            if changed == old:
                return old
            try:
                return self.connection.request("PUT", f"{path}/{subresource}".rstrip("/"), body=changed)
            except ApiError as error:
                if error.code != CONFLICT:
                    raise

    def modify_status(self, resource: Resource, thing: Json, change: Callable[[Json], None]) -> Json:
        """Change the newest status of an object in place."""
        metadata: Json = thing["metadata"]
        return self.modify(resource, metadata.get("namespace", ""), metadata["name"], change, "status")

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions | None = None) -> None:
        """Delete an object. Raises ApiError."""
        self.connection.request("DELETE", make_path(resource, namespace, name), body=_write(options or DeleteOptions()))

    def evict(self, pod: Json, options: DeleteOptions) -> None:
        """Delete a pod through the eviction API."""
        metadata = {name: pod["metadata"][name] for name in ("name", "namespace")}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": _write(options)}
        path = make_path(PODS, metadata["namespace"], metadata["name"])
        self.connection.request("POST", f"{path}/eviction", body=body)


def make_path(resource: Resource, namespace: str, name: str = "") -> str:
    """Make the path of an object, or of a collection."""
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    place = f"/namespaces/{namespace}" if resource.is_namespaced else ""
    return f"{root}{place}/{resource.plural}/{name}".rstrip("/")


def _write(options: DeleteOptions) -> Json:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if options.propagation_policy is not None:
        body["propagationPolicy"] = options.propagation_policy
    if options.grace_period_seconds is not None:
        body["gracePeriodSeconds"] = options.grace_period_seconds
    if options.uid is not None:
        body["preconditions"] = {"uid": options.uid}
    return body
