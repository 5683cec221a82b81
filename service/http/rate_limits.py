"""Rate limits of requests: by key and attempt, and by network address for those without either."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.addresses import get_address
from service.http.gate import SESSION_PATH, get_sender_id, is_guarded
from service.http.problems import ProblemError, refuse_early
from service.http.request_body import INGEST_PREFIX
from service.http.shares import Shares
from service.http.suspects import Suspects, digest_credentials
from service.http.token_buckets import TokenBuckets

HEALTH_PATH = "/healthz"
"""Path that is never refused."""
BURST_SECONDS = 10.0
"""Seconds whose requests may come all at once."""
IN_PROGRESS = Shares("slots for requests", total=500, share=100, wait_seconds=0.0)
"""Requests of known senders that are in progress: half of the connections, so that others find some."""


class AddressLimit:
    """ASGI middleware that limits, by network address, requests without credentials and failing sign-ins."""

    def __init__(self, app: ASGIApp, requests_per_second: float, suspects: Suspects) -> None:
        self._app = app
        self._requests = TokenBuckets(requests_per_second, BURST_SECONDS * requests_per_second)
        self._suspects = suspects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == HEALTH_PATH:
            await self._app(scope, receive, send)
            return
        address = get_address(scope)
        is_sign_in = scope["path"] == SESSION_PATH and scope["method"] == "POST"
        try:
            self._check(scope, address, is_sign_in=is_sign_in)
        except ProblemError as problem:
            await problem.to_response()(scope, receive, send)
            return

        async def send_and_note_failure(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                self._suspects.note_failure(address, None)
            await send(message)

        await self._app(scope, receive, send_and_note_failure if is_sign_in else send)

    def _check(self, scope: Scope, address: str, *, is_sign_in: bool) -> None:
        """Raise ProblemError (429) where too much came from this address."""
        if is_guarded(scope["path"]) and digest_credentials(Headers(scope=scope)) is not None:
            return
        refuse_early(self._requests.take(address), "this network address")
        if is_sign_in:
            refuse_early(self._suspects.get_wait_seconds(address, None), "this network address, of wrong credentials")


class SenderLimit:
    """ASGI middleware that limits the requests of one key or attempt: their rate, and how many are in progress."""

    def __init__(self, app: ASGIApp, requests_per_second: float, pushes_per_second: float) -> None:
        self._app = app
        self._requests = TokenBuckets(requests_per_second, BURST_SECONDS * requests_per_second)
        self._pushes = TokenBuckets(pushes_per_second, BURST_SECONDS * pushes_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_guarded(scope["path"]):
            await self._app(scope, receive, send)
            return
        sender_id = get_sender_id(scope)
        is_push = scope["path"].startswith(INGEST_PREFIX)
        try:
            wait_seconds = (self._pushes if is_push else self._requests).take(sender_id)
            refuse_early(wait_seconds, "this attempt" if is_push else "this key")
            async with IN_PROGRESS.take(1, sender_id):
                await self._app(scope, receive, send)
        except ProblemError as problem:
            await problem.to_response()(scope, receive, send)
