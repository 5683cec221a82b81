"""Senders of requests: the holder of an API key or browser session, or the ranks of an attempt."""

from dataclasses import dataclass

from starlette.requests import Request

from service.http.request_body import INGEST_PREFIX
from service.keys.dependencies import find_principal, get_bearer_token
from service.keys.principal import Principal
from service.services import get_services


@dataclass(frozen=True)
class AttemptSender:
    """Ranks of an attempt, which know its token."""

    attempt_id: str


def identify(request: Request) -> Principal | AttemptSender:
    """Return the sender of a request to the API. Raises ProblemError where its credentials are wrong."""
    services = get_services(request)
    path: str = request.scope["path"]
    if path.startswith(INGEST_PREFIX):
        attempt_id = path.removeprefix(INGEST_PREFIX)
        services.reports.check_token(attempt_id, get_bearer_token(request))
        return AttemptSender(attempt_id)
    return find_principal(request, services)
