"""Senders of requests: the holder of an API key or browser session, or the ranks of an attempt."""

from starlette.requests import Request

from service.http.gate import INGEST_PREFIX, Identity
from service.keys.dependencies import find_principal, get_bearer_token
from service.services import get_services


def identify(request: Request) -> Identity:
    """Return the sender of a request to the API. Raises ProblemError if its credentials are wrong."""
    services = get_services(request)
    path: str = request.scope["path"]
    if path.startswith(INGEST_PREFIX):
        attempt_id = path.removeprefix(INGEST_PREFIX)
        services.reports.check_token(attempt_id, get_bearer_token(request))
        return Identity(attempt_id, attempt_id, attempt_id)
    principal = find_principal(request, services)
    return Identity(principal, principal.sender_id, principal.name)
