"""Gate of the API: the sender of a request is known before a byte of its body is read."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.database.failures import is_database_away
from service.http.addresses import get_address
from service.http.problems import ProblemError, database_unavailable, refuse_early, unauthenticated
from service.http.suspects import Suspects, digest_credentials
from service.http.turns import Turns

API_PREFIX = "/v1/"
SESSION_COOKIE = "dlrm_session"
SESSION_PATH = "/v1/session"
"""Path of sign-in and sign-out, the only one of the API that needs no credentials."""
AUTHENTICATION = Turns("authentication", 2, share=1, max_waiting=500, waiting_share=100)
"""Threads that look keys, sessions and tokens up, by turns of these."""
SUSPICIONS = Turns("authentication of suspects", 1, share=1, max_waiting=20, waiting_share=10)
"""Thread that does so for addresses from which many wrong ones came, by turns of the addresses."""


@dataclass(frozen=True)
class Identity:
    """Sender of a request, as the HTTP layer knows it."""

    sender: object
    """Sender as endpoints know it."""
    sender_id: str
    """Id under which the limits of one sender are counted."""
    name: str
    """Name in the log."""


Identify = Callable[[Request], Identity]
"""Function that returns the sender of a request. Raises ProblemError if its credentials are wrong."""


class Gate:
    """ASGI middleware that refuses requests to the API without valid credentials, and leaves their bodies unread.

    The sender is kept in `request.state.sender`, its id and name beside it.
    """

    def __init__(self, app: ASGIApp, identify: Identify, suspects: Suspects) -> None:
        self._app = app
        self._identify = identify
        self._suspects = suspects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_guarded(scope["path"]):
            # Without `receive`, so that nothing here can read the body.
            request = Request(scope)
            try:
                identity = await self._find_sender(request)
            except ProblemError as problem:
                await problem.to_response()(scope, receive, send)
                return
            except Exception as error:
                # The handlers of errors are behind this gate.
                if not is_database_away(error):
                    raise
                await database_unavailable().to_response()(scope, receive, send)
                return
            request.state.sender = identity.sender
            request.state.sender_id = identity.sender_id
            request.state.sender_name = identity.name
        await self._app(scope, receive, send)

    async def _find_sender(self, request: Request) -> Identity:
        credentials = digest_credentials(request.headers)
        if credentials is None:
            raise unauthenticated("send an API key as `Authorization: Bearer dlrm_…`, or sign in")
        address = get_address(request.scope)
        wait_seconds = self._suspects.get_wait_seconds(address, credentials)
        try:
            if wait_seconds:
                identity = await SUSPICIONS.run(address, self._identify, request)
            else:
                identity = await AUTHENTICATION.run(credentials, self._identify, request)
        except ProblemError as problem:
            if problem.status == 401:
                self._suspects.note_failure(address, credentials)
                refuse_early(wait_seconds, "this network address, of wrong credentials")
            raise
        self._suspects.note_success(credentials)
        return identity


def get_sender_id(scope: Scope) -> str:
    """Return the id of a request's sender: its network address where it needs no credentials."""
    return scope.get("state", {}).get("sender_id", get_address(scope))


def is_guarded(path: str) -> bool:
    """Whether requests to `path` need a sender."""
    return path.startswith(API_PREFIX) and path != SESSION_PATH
