"""HTTP connections of the two clients: one blocks, the other one lets an event loop go on."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx

from service.client.connection import Connection


class BlockingWire:
    """Connection whose coroutines block instead of waiting, see `service.client.blocking`."""

    def __init__(self, connection: Connection) -> None:
        self.http = httpx.Client(**_make_options(connection))

    async def send(self, request: httpx.Request, *, is_stream: bool) -> httpx.Response:
        """Send a request, and return the answer. is_stream: leave the body of a success unread."""
        response = self.http.send(request, stream=is_stream)
        if not response.is_success:
            response.read()
        return response

    async def iterate(self, response: httpx.Response) -> AsyncIterator[bytes]:
        for part in response.iter_bytes():
            yield part

    async def end(self, response: httpx.Response) -> None:
        response.close()

    @staticmethod
    async def sleep(seconds: float) -> None:
        time.sleep(seconds)

    async def close(self) -> None:
        self.http.close()


class LoopWire:
    """Connection for programs with an event loop."""

    iterate = staticmethod(httpx.Response.aiter_bytes)
    end = staticmethod(httpx.Response.aclose)
    sleep = staticmethod(asyncio.sleep)

    def __init__(self, connection: Connection) -> None:
        # A program may have as many streams as it likes.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self.http = httpx.AsyncClient(limits=limits, **_make_options(connection))
        self.close = self.http.aclose

    async def send(self, request: httpx.Request, *, is_stream: bool) -> httpx.Response:
        response = await self.http.send(request, stream=is_stream)
        if not response.is_success:
            await response.aread()
        return response


Wire = BlockingWire | LoopWire


def _make_options(connection: Connection) -> dict[str, Any]:
    return {"base_url": connection.url, "headers": {"Authorization": f"Bearer {connection.api_key}"}}
