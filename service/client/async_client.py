"""The client for programs with an event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from service.client.client import Client
from service.client.connection import find_connection
from service.client.operations import Operations
from service.client.transport import Transport
from service.client.wire import LoopWire

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _in_thread(
    method: Callable[Concatenate[Client, Parameters], Result],
) -> Callable[Concatenate["AsyncClient", Parameters], Coroutine[Any, Any, Result]]:
    """Make a method that runs the one of `Client` in a thread, callbacks included."""

    @wraps(method)
    async def call(client: "AsyncClient", *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        def call_blocking() -> Result:
            with client._make_client() as blocking:  # pyright: ignore[reportPrivateUsage]
                return method(blocking, *args, **kwargs)

        return await asyncio.to_thread(call_blocking)

    return call


class AsyncClient(Operations):
    """Client of one service with the methods of `Client`. Lists are asynchronous iterators."""

    def __init__(self, url: str | None = None, api_key: str | None = None, timeout_seconds: float = 30.0) -> None:
        """Connect to a service, see `Client`."""
        connection = find_connection(url, api_key)
        self.url = connection.url
        self._make_client = partial(Client, connection.url, connection.api_key, timeout_seconds)
        super().__init__(Transport(connection.url, LoopWire(connection), timeout_seconds))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    download = _in_thread(Client.download)
