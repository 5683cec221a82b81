"""Gate of the API: who sends a request is known, and limited, before a byte of its body is read."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.database.failures import is_database_away
from service.http.limits import Shares, Suspects, TokenBuckets, Turns, digest_credentials
from service.http.middleware import HttpMiddleware
from service.http.problems import ProblemError, database_unavailable, refuse_early, unauthenticated
from service.http.request_origin import get_address

API_PREFIX = "/v1/"
INGEST_PREFIX = "/v1/ingest/"
SESSION_COOKIE = "dlrm_session"
SESSION_PATH = "/v1/session"
"""Path of sign-in and sign-out, the only one of the API that needs no credentials."""
STREAM_SUFFIX = "/stream"
"""End of the paths of streams."""
HEALTH_PATH = "/healthz"
"""Path that is never refused."""
BURST_SECONDS = 10.0
"""Seconds whose requests may come all at once."""
AUTHENTICATION = Turns("authentication", 2, share=1, max_waiting=500, waiting_share=100)
"""Threads that look keys, sessions and tokens up, by turns of these."""
SUSPICIONS = Turns("authentication of suspects", 1, share=1, max_waiting=20, waiting_share=10)
"""Thread that looks up credentials of addresses with many wrong ones, by turns of the addresses."""
IN_PROGRESS = Shares("slots for requests", total=500, share=100, wait_seconds=0.0)
"""Requests of known senders that are in progress: a third of the connections, so that others find some."""

OPEN_STREAMS = Shares("streams", total=500, share=250, wait_seconds=0.0)
"""Open streams of known senders, which are no requests in progress: those end soon."""


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


class AddressLimit(HttpMiddleware):
    """ASGI middleware that limits, by network address, requests without credentials and failing sign-ins."""

    def __init__(self, app: ASGIApp, requests_per_second: float, suspects: Suspects) -> None:
        super().__init__(app)
        self._requests = TokenBuckets(requests_per_second, BURST_SECONDS * requests_per_second)
        self._suspects = suspects

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == HEALTH_PATH:
            await self._app(scope, receive, send)
            return
        address = get_address(scope)
        is_sign_in = scope["path"] == SESSION_PATH and scope["method"] == "POST"
        self._check(scope, address, is_sign_in=is_sign_in)

        async def send_and_note_failure(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                self._suspects.note_failure(address, None)
            await send(message)

        await self._app(scope, receive, send_and_note_failure if is_sign_in else send)

    def _check(self, scope: Scope, address: str, *, is_sign_in: bool) -> None:
        """Raise ProblemError (429) if too much came from this address."""
        if is_guarded(scope["path"]) and digest_credentials(Headers(scope=scope)) is not None:
            return
        refuse_early(self._requests.take(address), "this network address")
        if is_sign_in:
            refuse_early(self._suspects.get_wait_seconds(address, None), "this network address, of wrong credentials")


class Gate(HttpMiddleware):
    """ASGI middleware that refuses requests to the API without valid credentials, and leaves their bodies unread.

    The sender is kept in `request.state.sender`, its id and name beside it.
    """

    def __init__(self, app: ASGIApp, identify: Identify, suspects: Suspects) -> None:
        super().__init__(app)
        self._identify = identify
        self._suspects = suspects

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_guarded(scope["path"]):
            # Without `receive`, so that nothing here can read the body.
            request = Request(scope)
            try:
                identity = await self._find_sender(request)
            except Exception as error:
                # The handlers of errors are behind this gate.
                if not is_database_away(error):
                    raise
                raise database_unavailable() from None
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


class SenderLimit(HttpMiddleware):
    """ASGI middleware that limits the requests of one key or attempt: their rate, and how many are in progress."""

    def __init__(self, app: ASGIApp, requests_per_second: float, pushes_per_second: float) -> None:
        super().__init__(app)
        self._requests = TokenBuckets(requests_per_second, BURST_SECONDS * requests_per_second)
        self._pushes = TokenBuckets(pushes_per_second, BURST_SECONDS * pushes_per_second)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_guarded(scope["path"]):
            await self._app(scope, receive, send)
            return
        sender_id = get_sender_id(scope)
        is_push = scope["path"].startswith(INGEST_PREFIX)
        wait_seconds = (self._pushes if is_push else self._requests).take(sender_id)
        refuse_early(wait_seconds, "this attempt" if is_push else "this key")
        async with (OPEN_STREAMS if is_stream(scope["path"]) else IN_PROGRESS).take(1, sender_id):
            await self._app(scope, receive, send)


def get_sender_id(scope: Scope) -> str:
    """Return the id of a request's sender: its network address if it needs no credentials."""
    return scope.get("state", {}).get("sender_id", get_address(scope))


def is_stream(path: str) -> bool:
    """Whether an answer of the API to `path` goes on until its client leaves or the service ends it."""
    return path.startswith(API_PREFIX) and path.endswith(STREAM_SUFFIX)


def is_guarded(path: str) -> bool:
    """Whether requests to `path` need a sender."""
    return path.startswith(API_PREFIX) and path != SESSION_PATH
