"""Record of every request that the server has had."""

import threading
from dataclasses import dataclass

from tests.kubernetes.fake.routes import Call

Permission = tuple[str, str, str]
"""API group, resource or resource/subresource, and verb."""


@dataclass(frozen=True)
class Recorded:
    """One request and its answer."""

    call: Call
    status: int
    """Code of the answer; 0 if none was sent."""

    @property
    def verb(self) -> str:
        return self.call.verb

    @property
    def resource_name(self) -> str:
        return self.call.resource_name


class Recorder:
    """Requests in the order in which they were answered; watches count from their beginning."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[Recorded] = []

    def note(self, call: Call, status: int) -> None:
        """Note a request."""
        with self._lock:
            self._requests.append(Recorded(call, status))

    def requests(self, verb: str | None = None, resource_name: str | None = None) -> list[Recorded]:
        """Return the requests of a verb on a resource ("pods", "pods/log")."""
        with self._lock:
            return [
                one for one in self._requests if verb in (None, one.verb) and resource_name in (None, one.resource_name)
            ]

    def list_permissions(self) -> set[Permission]:
        """Return what rules of RBAC must allow for the requests that were not refused."""
        return {
            (one.call.group, one.resource_name, one.verb)
            for one in self.requests()
            if one.call.resource is not None and one.status != 403
        }
