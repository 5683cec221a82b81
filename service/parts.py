"""Parts of a running service as FastAPI dependencies, found by their type, so that an endpoint names its own alone."""

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from fastapi import Depends, FastAPI, Request

Part = TypeVar("Part")


def provide_parts(app: FastAPI, parts: Iterable[object]) -> None:
    """Keep the parts of a service in `app.state`, one of each type."""
    app.state.parts = {type(part): part for part in parts}


def get_part(request: Request, kind: type[Part]) -> Part:
    """Return the part of a type, of the service that answers `request`."""
    return cast("Part", request.app.state.parts[kind])


def depend_on(kind: type[object]) -> Any:
    """Return the dependency of an endpoint on the part of a type."""

    async def get(request: Request) -> object:
        # Not a plain function: FastAPI would run that in a thread.
        return get_part(request, kind)

    return Depends(get)
