"""Actors of the audit log."""

from dataclasses import dataclass

from service.http.request_origin import NO_REQUEST, RequestOrigin


@dataclass(frozen=True)
class Actor:
    """Actor of an action, with the origin of the request."""

    owner: str = ""
    """Owner of the key that acts; empty where nobody is signed in, and where the service acts by itself."""
    key_id: str | None = None
    origin: RequestOrigin = NO_REQUEST


SERVICE = Actor()
"""Actor of what the service does by itself."""
