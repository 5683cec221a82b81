"""Failures of requests, with the bodies that Kubernetes writes for them."""

from tests.kubernetes.fake.resources import Json, Resource


class ApiError(Exception):
    """Request that fails with a Status body."""

    def __init__(self, code: int, reason: str, message: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds

    def to_status(self) -> Json:
        """Return the body of the answer."""
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": self.code}
        return {**status, "message": self.message, "reason": self.reason}


def not_found(resource: Resource, name: str) -> ApiError:
    """Return the failure for an object that is not there."""
    return ApiError(404, "NotFound", f'{resource.qualified_name} "{name}" not found')


def already_exists(resource: Resource, name: str) -> ApiError:
    """Return the failure for a name that is taken."""
    return ApiError(409, "AlreadyExists", f'{resource.qualified_name} "{name}" already exists')


def precondition_failed(resource: Resource, name: str, given: str, found: str) -> ApiError:
    """Return the failure for a deletion of an object with another uid."""
    why = f"the UID in the precondition ({given}) does not match the UID in record ({found})"
    message = f'Operation cannot be fulfilled on {resource.qualified_name} "{name}": {why}'
    return ApiError(409, "Conflict", message)


def expired(message: str) -> ApiError:
    """Return the failure for a resource version that history has forgotten."""
    return ApiError(410, "Expired", message)
