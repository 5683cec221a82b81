"""Gate of the API: who sends a request is known, and limited, before a byte of its body is read."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.database.failures import is_database_away
from service.http.limits import Shares, Suspects, TokenBuckets, Turns, digest_credentials
from service.http.middleware import HttpMiddleware
from service.http.problems import ProblemError, database_unavailable, refuse_early, unauthenticated
from service.http.request_origin import get_address

log = structlog.get_logger(__name__)

API_PREFIX = "/v1/"
INGEST_PREFIX = "/v1/ingest/"
SESSION_COOKIE = "dlrm_session"
SESSION_PATH = "/v1/session"
"""Path of sign-in and sign-out, the only one of the API that needs no credentials."""
METRICS_PATH = "/metrics"
"""Path of the metrics of the service, which need a key too."""
STREAM_SUFFIX = "/stream"
"""End of the paths of streams."""
HEALTH_PATH = "/healthz"
"""Path that is never refused."""
WAIT_SECONDS = "wait_seconds"
"""Name, in the state of a sign-in, of the seconds for which wrong credentials are refused; 0 if they are not."""
WRONG_CREDENTIALS = "this network address, of wrong credentials"
BURST_SECONDS = 10.0
"""Seconds whose requests may come all at once."""
AUTHENTICATION = Turns("authentication", 2, share=1, max_waiting=500, waiting_share=100)
"""Threads that look keys, sessions and tokens up, by turns of these."""
SUSPICIONS = Turns("authentication of suspects", 1, share=1, max_waiting=1000, waiting_share=1000)
"""Thread that looks up credentials of addresses with many wrong ones, by turns of the addresses. As many may wait as
there are connections: a right key is among them."""
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
Recall = Callable[[Request], Identity | None]
"""Function that returns the sender of a request if it was found a moment ago; it must not take long."""


class AddressLimit(HttpMiddleware):
    """ASGI middleware that limits, by network address, requests without credentials and failing sign-ins.

    A sign-in is always tried: behind a proxy an address may be everybody's, and a right key is never refused.
    """

    def __init__(self, app: ASGIApp, requests_per_second: float, suspects: Suspects) -> None:
        super().__init__(app)
        self._requests = TokenBuckets(requests_per_second, BURST_SECONDS * requests_per_second)
        self._suspects = suspects
        self._has_warned = False

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == HEALTH_PATH:
            await self._app(scope, receive, send)
            return
        address = get_address(scope)
        self._warn_of_proxy(scope)
        if scope["path"] != SESSION_PATH or scope["method"] != "POST":
            if not is_guarded(scope["path"]) or digest_credentials(Headers(scope=scope)) is None:
                refuse_early(self._requests.take(address), "this network address")
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})[WAIT_SECONDS] = self._suspects.get_wait_seconds(address, None)

        async def send_and_note_failure(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                self._suspects.note_failure(address, None)
            await send(message)

        await self._app(scope, receive, send_and_note_failure)

    def _warn_of_proxy(self, scope: Scope) -> None:
        """Log once that a proxy names the address of a client, and is not trusted."""
        # The server gives a client that a trusted proxy has named the port 0.
        if self._has_warned or not (scope["client"] or ("", 0))[1] or b"x-forwarded-for" not in dict(scope["headers"]):
            return
        self._has_warned = True
        advice = "if this is your proxy, name it in DLRM_TRUSTED_PROXIES: all its clients share one address's limits"
        log.warning("proxy_not_trusted", address=get_address(scope), advice=advice)


class Gate(HttpMiddleware):
    """ASGI middleware that refuses requests to the API without valid credentials, and leaves their bodies unread.

    The sender is kept in `request.state.sender`, its id and name beside it.
    """

    def __init__(self, app: ASGIApp, identify: Identify, recall: Recall, suspects: Suspects) -> None:
        super().__init__(app)
        self._identify = identify
        self._recall = recall
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
        known = self._recall(request)
        if known is not None:
            return known
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
                refuse_early(wait_seconds, WRONG_CREDENTIALS)
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
    return path == METRICS_PATH or (path.startswith(API_PREFIX) and path != SESSION_PATH)
