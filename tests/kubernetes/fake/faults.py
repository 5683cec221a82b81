"""Faults that tests have the server make."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.kubernetes.fake.errors import ApiError, expired
from tests.kubernetes.fake.resources import Json
from tests.kubernetes.fake.routes import Call
from tests.kubernetes.fake.watches import error_event

Events = Iterator[Json | None]
Lines = Iterator[bytes | None]


class DroppedConnectionError(Exception):
    """End of a connection without, or in the middle of, an answer."""


@dataclass(frozen=True)
class Answer:
    """Refusal in the place of an answer. The request is not carried out."""

    code: int
    reason: str = ""
    message: str = ""
    retry_after_seconds: int | None = None
    is_plain_text: bool = False
    """Whether the body is the message alone, as proxies in front of an API server write it."""

    def to_error(self) -> ApiError:
        """Return the failure that is answered."""
        reason, message = _REASONS.get(self.code, ("InternalError", "an error on the server"))
        return ApiError(self.code, self.reason or reason, self.message or message, self.retry_after_seconds)


_REASONS = {
    401: ("Unauthorized", "Unauthorized"),
    409: ("Conflict", "Operation cannot be fulfilled: the object has been modified"),
    410: ("Expired", "The resourceVersion for the provided watch is too old."),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: etcdserver: request timed out"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the requested timeout 34s"),
}


@dataclass(frozen=True)
class Delay:
    """Pause before the request is carried out."""

    seconds: float


@dataclass(frozen=True)
class DropRequest:
    """Connection that closes before the request is carried out."""


@dataclass(frozen=True)
class LoseAnswer:
    """Connection that closes after the request has been carried out, without an answer."""


@dataclass(frozen=True)
class TruncateAnswer:
    """Answer of which only the first bytes come before the connection closes."""

    num_bytes: int = 20


class WatchFault:
    """Fault of a watch: it turns events into the lines that are sent."""

    def lines(self, events: Events) -> Lines:
        """Yield lines, None if nothing has come. Raise DroppedConnectionError to end the connection."""
        for event in self.change(events):
            yield None if event is None else encode(event)

    def change(self, events: Events) -> Events:
        """Yield the events that the client is to see."""
        return events


def encode(event: Json) -> bytes:
    """Return the line of an event."""
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True)
class DropWatch(WatchFault):
    """Connection that breaks after some events."""

    num_events: int = 0

    def change(self, events: Events) -> Events:
        """Yield some events."""
        yield from _take(events, self.num_events)
        raise DroppedConnectionError


@dataclass(frozen=True)
class SilenceWatch(WatchFault):
    """Watch that stays open and sends nothing."""

    def change(self, events: Events) -> Events:
        """Yield nothing."""
        for _ in events:
            yield None


@dataclass(frozen=True)
class DuplicateEvents(WatchFault):
    """Watch that repeats every event."""

    def change(self, events: Events) -> Events:
        """Yield every event twice."""
        for event in events:
            yield event
            if event:
                yield event


@dataclass(frozen=True)
class ExpireWatch(WatchFault):
    """Watch that ends with ERROR 410 in the stream after some events."""

    num_events: int = 0

    def change(self, events: Events) -> Events:
        """Yield some events and the error."""
        yield from _take(events, self.num_events)
        yield error_event(expired("too old resource version: 1 (2)"))


@dataclass(frozen=True)
class TruncateWatch(WatchFault):
    """Watch that breaks in the middle of a line, behind some events."""

    num_events: int = 0

    def lines(self, events: Events) -> Lines:
        """Yield some lines and half of one."""
        num_sent = 0
        for event in events:
            if event is None:
                yield None
                continue
            line = encode(event)
            if num_sent == self.num_events:
                yield line[: len(line) // 2]
                raise DroppedConnectionError
            num_sent += 1
            yield line


@dataclass(frozen=True)
class SlowWatch(WatchFault):
    """Watch that trickles."""

    num_bytes: int = 64
    pause_seconds: float = 0.01

    def lines(self, events: Events) -> Lines:
        """Yield lines in pieces."""
        for event in events:
            if event is None:
                yield None
                continue
            line = encode(event)
            for start in range(0, len(line), self.num_bytes):
                yield line[start : start + self.num_bytes]
                time.sleep(self.pause_seconds)


def _take(events: Events, num_events: int) -> Events:
    for event in events if num_events else ():
        yield event
        num_events -= event is not None
        if num_events == 0:
            return


Fault = Answer | Delay | DropRequest | LoseAnswer | TruncateAnswer | WatchFault


@dataclass
class _Planned:
    fault: Fault
    verb: str | None
    resource_name: str | None
    name: str | None
    times: int | None
    skip: int

    def concerns(self, call: Call) -> bool:
        wanted = ((self.verb, call.verb), (self.resource_name, call.resource_name), (self.name, call.name))
        return all(one is None or one == found for one, found in wanted)


class FaultPlan:
    """Faults that are still to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: list[_Planned] = []

    def inject(
        self,
        fault: Fault,
        verb: str | None = None,
        resource: str | None = None,
        name: str | None = None,
        times: int | None = 1,
        skip: int = 0,
    ) -> None:
        """Have calls fail. resource: "pods", "jobs/status"; times: None for always; skip: calls that still succeed."""
        with self._lock:
            self._planned.append(_Planned(fault, verb, resource, name, times, skip))

    def clear(self) -> None:
        """Have nothing fail any more."""
        with self._lock:
            self._planned.clear()

    def take(self, call: Call) -> list[Fault]:
        """Return the faults of a call. A fault of watches waits for one."""
        taken: list[Fault] = []
        with self._lock:
            for planned in self._planned:
                if not planned.concerns(call) or (isinstance(planned.fault, WatchFault) and call.verb != "watch"):
                    continue
                if planned.skip:
                    planned.skip -= 1
                elif planned.times is None:
                    taken.append(planned.fault)
                elif planned.times > 0:
                    planned.times -= 1
                    taken.append(planned.fault)
        return taken
