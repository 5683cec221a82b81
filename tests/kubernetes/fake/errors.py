"""Failures of requests, with the bodies that Kubernetes writes for them."""

from typing import Any

from tests.kubernetes.fake.resources import Json, Resource


class ApiError(Exception):
    """Request that fails with a Status body."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = None if details is None else dict(details)
        self.retry_after_seconds = retry_after_seconds
        if retry_after_seconds is not None:
            self.details = {**(details or {}), "retryAfterSeconds": retry_after_seconds}

    def to_status(self) -> Json:
        """Return the body of the answer."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }
        if self.details is None:
            del status["details"]
        if not self.reason:
            del status["reason"]
        return status


class PageNotFoundError(Exception):
    """Path that no resource is served at: the answer is plain text, not a Status."""


def cause(reason: str, message: str, field: str) -> Json:
    """Return one cause of `details.causes`."""
    return {"reason": reason, "message": message, "field": field}


def _details(resource: Resource, name: str) -> Json:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}


def not_found(resource: Resource, name: str) -> ApiError:
    """Return the failure for an object that is not there."""
    message = f'{resource.qualified_name} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(resource, name))


def already_exists(resource: Resource, name: str) -> ApiError:
    """Return the failure for a name that is taken."""
    message = f'{resource.qualified_name} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(resource: Resource, name: str, why: str = STALE) -> ApiError:
    """Return the failure for a write that another write came before."""
    message = f'Operation cannot be fulfilled on {resource.qualified_name} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def precondition_failed(resource: Resource, name: str, why: str) -> ApiError:
    """Return the failure for a deletion whose preconditions do not hold; it names the kind, not the resource."""
    details = {"name": name, "group": resource.group, "kind": resource.kind}
    message = f'Operation cannot be fulfilled on {resource.qualified_kind} "{name}": {why}'
    return ApiError(409, "Conflict", message, {key: value for key, value in details.items() if value})


def forbidden(resource: Resource, name: str, why: str, causes: list[Json] | None = None) -> ApiError:
    """Return the failure for what admission or authorisation refuses."""
    subject = f'{resource.qualified_name} "{name}"' if name else resource.qualified_name
    details: dict[str, Any] = _details(resource, name)
    if causes:
        details["causes"] = causes
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def invalid(resource: Resource, name: str, causes: list[Json]) -> ApiError:
    """Return the failure for an object whose fields are wrong. causes: see `field_error`."""
    # The same line twice is told once, the causes are kept.
    lines = list(dict.fromkeys(f"{one['field']}: {one['message']}" for one in causes))
    listed = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": causes}
    message = f'{resource.qualified_kind} "{name}" is invalid: {listed}'
    return ApiError(422, "Invalid", message, {key: value for key, value in details.items() if value})


def bad_request(message: str) -> ApiError:
    """Return the failure for a body or query that cannot be read."""
    return ApiError(400, "BadRequest", message)


def expired(message: str) -> ApiError:
    """Return the failure for a resource version that history has forgotten."""
    return ApiError(410, "Expired", message)


def method_not_allowed() -> ApiError:
    """Return the failure for a method that a resource does not have."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def unknown_resource() -> ApiError:
    """Return the failure for a resource that its group, which is served, does not have."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})
