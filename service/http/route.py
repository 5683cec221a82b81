"""Routes of the API, whose endpoints are plain functions in threads of their kind of work."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from fastapi.routing import APIRoute

from service.http.threads import CONTROL, Threads

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
_THREADS = "__threads__"
"""Attribute of an endpoint with the threads in which it runs."""


def runs_in(threads: Threads) -> Callable[[Endpoint], Endpoint]:
    """Let an endpoint run in `threads`; without this it runs in those of control."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _THREADS, threads)
        return endpoint

    return mark


class ApiRoute(APIRoute):
    """Route of the REST API."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _run_in_threads(endpoint), **options)


def _run_in_threads(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return an endpoint that runs `endpoint` in its threads; itself where it needs none."""
    if inspect.iscoroutinefunction(endpoint):
        return endpoint
    threads: Threads = getattr(endpoint, _THREADS, CONTROL)

    @wraps(endpoint)
    async def run(**arguments: Any) -> Any:
        return await threads.run(endpoint, **arguments)

    return run
