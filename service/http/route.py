"""Routes of the API, whose endpoints are plain functions in threads of their kind of work."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, TypeVar

import structlog
from anyio import CancelScope, sleep
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers

from service.database.interruption import Interruptible, let_be_interrupted
from service.http.body_text import TOML_BODIES, has_toml, parse_json, parse_toml
from service.http.gate import API_PREFIX, HEALTH_PATH, INGEST_PREFIX, get_sender_id, is_guarded
from service.http.limits import CONTROL, Threads, Turns
from service.http.problem_kinds import document_problems, get_own_kinds
from service.http.problems import READ_METHODS
from service.http.query import check_query, list_parameters
from service.http.request_body import JSON
from service.http.request_log import GONE

log = structlog.get_logger(__name__)

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
_THREADS = "__threads__"
"""Attribute of an endpoint with the threads in which it runs."""
WATCH_SECONDS = 0.05
"""Time that a call runs before its client is watched."""
INTERRUPT_SECONDS = 0.1
"""Time between two interruptions of a call whose client has left."""
INTERRUPTIONS = Threads("interruptions", 4)
"""Threads that interrupt calls."""
_request: ContextVar[Request] = ContextVar("request")


class ClientGoneError(Exception):
    """Leave of a client before it was answered."""


def runs_in(threads: Threads | Turns) -> Callable[[Endpoint], Endpoint]:
    """Let an endpoint run in `threads`; without this it runs in `CONTROL`."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _THREADS, threads)
        return endpoint

    return mark


class ApiRoute(APIRoute):
    """Route of the REST API."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _run_in_threads(endpoint), **options)
        # Those that the endpoint documents itself stay.
        self.responses = document_problems(self._list_problem_kinds()) | self.responses

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests. It refuses unknown query parameters, and bodies that are ambiguous."""
        handle = super().get_route_handler()
        parameters = list_parameters(self.dependant)

        async def handle_strictly(request: Request) -> Response:
            check_query(request.query_params, parameters)
            strict = _TomlRequest if has_toml(request.headers) else _JsonRequest
            token = _request.set(request)
            try:
                return await handle(strict(request.scope, request.receive))
            except ClientGoneError:
                return Response(status_code=GONE)
            finally:
                _request.reset(token)

        return handle_strictly

    def _list_problem_kinds(self) -> Iterator[str]:
        """Yield the kinds of problems that requests to this route may be answered with."""
        yield from ("malformed-request", "invalid-request", "internal-error")
        yield from get_own_kinds(self.endpoint)
        is_change = self.methods != {"GET"}
        if self.path != HEALTH_PATH:
            yield from ("too-many-requests", "too-busy", "storage-full", "database-unavailable")
        if is_guarded(self.path):
            yield "unauthenticated"
        if is_change and self.path.startswith(API_PREFIX) and not self.path.startswith(INGEST_PREFIX):
            yield "forbidden"
        if self.param_convertors:
            yield "not-found"
        if is_change:
            yield from ("malformed-json", "slow-body", "too-large", "unsupported-media-type")


class _JsonRequest(Request):
    """Request whose body is JSON."""

    async def json(self) -> Any:
        return parse_json(await self.body())


class _TomlRequest(Request):
    """Request whose body is TOML."""

    @property
    def headers(self) -> Headers:
        # The framework lets only what is said to be JSON be parsed.
        headers = super().headers.mutablecopy()
        headers["content-type"] = JSON
        return headers

    async def json(self) -> Any:
        return await TOML_BODIES.run(get_sender_id(self.scope), parse_toml, await self.body())


def _run_in_threads(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return an endpoint that runs `endpoint` in its threads; itself if it needs none."""
    if inspect.iscoroutinefunction(endpoint):
        return endpoint
    threads: Threads | Turns = getattr(endpoint, _THREADS, CONTROL)

    @wraps(endpoint)
    async def run(**arguments: Any) -> Any:
        request = _request.get()
        sender = get_sender_id(request.scope)
        start = partial(threads.run, sender) if isinstance(threads, Turns) else threads.run
        if request.method not in READ_METHODS:
            # Whoever changes something may leave without waiting for the answer.
            return await start(endpoint, **arguments)
        return await _run_for(request, partial(start, endpoint, **arguments))

    return run


async def _run_for(request: Request, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a call that only reads for as long as its client waits; its body has been read.

    If the client leaves, the call is dropped if it has no thread yet, or else its statements are interrupted. Raises
    ClientGoneError then. Nobody looks at the client of a call that ends soon.
    """
    interruptible, has_left = Interruptible(), False
    result: Any = None
    watches: list[asyncio.Task[None]] = []

    async def stop() -> None:
        nonlocal has_left
        await _wait_for_leave(request)
        has_left = True
        working.cancel()
        while True:
            # Again and again: a statement may be about to begin.
            try:
                await INTERRUPTIONS.run(interruptible.interrupt)
            except Exception as error:
                log.warning("not_interrupted", error=str(error).partition("\n")[0])
            await sleep(INTERRUPT_SECONDS)

    loop = asyncio.get_running_loop()
    timer = loop.call_later(WATCH_SECONDS, lambda: watches.append(loop.create_task(stop())))
    try:
        with CancelScope() as working, let_be_interrupted(interruptible):
            result = await call()
        if not has_left:
            return result
    except Exception:
        if not has_left:
            raise
    finally:
        timer.cancel()
        for watch in watches:
            watch.cancel()
    raise ClientGoneError


async def _wait_for_leave(request: Request) -> None:
    """Wait until the client of a request has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
