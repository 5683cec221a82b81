"""A real server with the limits that a test chooses."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from service.http.answers import PART_BYTES
from service.http.connections import ConnectionLimits
from service.http.request_body import BodyGuard, BodyLimits
from service.serve import bind_socket, make_server_config
from service.settings import Settings
from tests.patience import wait_until

LARGE_BYTES = 32 * 2**20
"""Size of the large answer: more than the buffers of a connection hold."""


def make_app(limits: BodyLimits | None = None, is_waiting: threading.Event | None = None) -> ASGIApp:
    """Make an application that answers `/v1/size` with the size of the body.

    `/v1/wait` sets `is_waiting` and is answered after a request to `/go`; the answer of `/large` is more than fits into
    the buffers of a connection, and `/download` sends as much in parts.
    """
    may_go = threading.Event()

    async def count_bytes(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    def wait(_: Request) -> Response:
        if is_waiting is not None:
            is_waiting.set()
        may_go.wait()
        return PlainTextResponse("gone")

    def go(_: Request) -> Response:
        may_go.set()
        return PlainTextResponse("going")

    def send_much(_: Request) -> Response:
        return Response(b"x" * LARGE_BYTES)

    def send_parts(_: Request) -> Response:
        return StreamingResponse(b"x" * PART_BYTES for _ in range(LARGE_BYTES // PART_BYTES))

    routes = [
        Route("/v1/size", count_bytes, methods=["POST"]),
        Route("/v1/wait", wait, methods=["POST"]),
        Route("/go", go),
        Route("/large", send_much),
        Route("/download", send_parts),
    ]
    return Starlette(routes=routes, middleware=[Middleware(BodyGuard, limits=limits or BodyLimits())])


@contextmanager
def serve_app(app: ASGIApp, limits: ConnectionLimits, settings: Settings | None = None) -> Iterator[str]:
    """Serve `app` in a thread with these limits, and yield the URL."""
    listening = bind_socket(settings or Settings(port=0))
    server = uvicorn.Server(make_server_config(app, limits, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
