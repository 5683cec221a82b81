"""Record of every request that the server has had."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.fake.resources import ACCESS_REVIEWS
from tests.kubernetes.fake.routes import Call

Permission = tuple[str, str, str]
"""API group, resource or resource/subresource, and verb."""


@dataclass
class Recorded:
    """One request and its answer."""

    call: Call
    status: int
    """Code of the answer; 0 where none was sent."""
    at: float
    """Time on the clock of time.monotonic."""
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def verb(self) -> str:
        return self.call.verb

    @property
    def resource_name(self) -> str:
        return self.call.resource_name

    @property
    def name(self) -> str:
        return self.call.name


class Recorder:
    """Requests in the order in which they were answered; watches count from their beginning."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[Recorded] = []

    def note(self, call: Call, status: int, body: Any, headers: dict[str, str]) -> None:
        """Note a request."""
        with self._lock:
            self._requests.append(Recorded(call, status, time.monotonic(), body, headers))

    def requests(self, verb: str | None = None, resource_name: str | None = None) -> list[Recorded]:
        """Return the requests of a verb on a resource ("pods", "pods/log")."""
        with self._lock:
            return [
                one for one in self._requests if verb in (None, one.verb) and resource_name in (None, one.resource_name)
            ]

    def permissions_used(self) -> set[Permission]:
        """Return what rules of RBAC must allow for all requests so far; what everybody may do is left out."""
        return {
            (one.call.group, one.resource_name, one.verb)
            for one in self.requests()
            if one.call.resource not in (None, ACCESS_REVIEWS)
        }

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._requests.clear()
