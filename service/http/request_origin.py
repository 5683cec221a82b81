"""Network address and id of a request, which are recorded with what it changes."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request


@dataclass(frozen=True)
class RequestOrigin:
    """Origin of a request."""

    address: str
    """Network address of the client."""
    request_id: str


NO_REQUEST = RequestOrigin("", "")
"""Origin of what the service does by itself."""


def get_request_origin(request: Request) -> RequestOrigin:
    address = request.client.host if request.client else ""
    return RequestOrigin(address, str(getattr(request.state, "request_id", "")))


OriginDependency = Annotated[RequestOrigin, Depends(get_request_origin)]
"""Parameter type of an endpoint that needs the origin of its request."""
