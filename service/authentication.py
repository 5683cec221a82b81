"""Senders of requests: the holder of an API key or browser session, or the ranks of an attempt."""

from starlette.requests import Request

from service.access.principal import Principal
from service.access.senders import get_bearer_token, refuse_foreign_page
from service.http.gate import INGEST_PREFIX, SESSION_COOKIE, Identity
from service.http.problems import unauthenticated
from service.http.request_origin import get_request_origin
from service.keys.service import KeyService
from service.keys.sessions import SessionService
from service.parts import get_part
from service.reports.service import ReportService


def identify(request: Request) -> Identity:
    """Return the sender of a request to the API. Raises ProblemError if its credentials are wrong."""
    path: str = request.scope["path"]
    if path.startswith(INGEST_PREFIX):
        attempt_id = path.removeprefix(INGEST_PREFIX)
        get_part(request, ReportService).check_token(attempt_id, get_bearer_token(request))
        return Identity(attempt_id, attempt_id, attempt_id)
    return _make_identity(_find_principal(request))


def recall(request: Request) -> Identity | None:
    """Return the holder of the API key of a request to the API if it was found within the last second."""
    secret = get_bearer_token(request)
    if secret is None or request.scope["path"].startswith(INGEST_PREFIX):
        return None
    principal = get_part(request, KeyService).recall(secret, get_request_origin(request))
    return None if principal is None else _make_identity(principal)


def _make_identity(principal: Principal) -> Identity:
    return Identity(principal, principal.sender_id, principal.name)


def _find_principal(request: Request) -> Principal:
    """Find the principal of the request's API key or browser session, in the database.

    Raises ProblemError if there is neither, or if a page of another site sends a change with this cookie.
    """
    origin = get_request_origin(request)
    secret = get_bearer_token(request)
    if secret is not None:
        return get_part(request, KeyService).authenticate(secret, origin)
    cookie = request.cookies.get(SESSION_COOKIE)
    principal = get_part(request, SessionService).authenticate(cookie, origin) if cookie else None
    if principal is None:
        raise unauthenticated("send an API key as `Authorization: Bearer dlrm_…`, or sign in")
    refuse_foreign_page(request)
    return principal
