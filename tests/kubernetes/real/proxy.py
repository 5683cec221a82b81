"""Passing of requests on to a real API server: the server of the fake makes faults and records in front of it."""

import json
import queue
import threading
from collections.abc import Iterator

import urllib3

from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.resources import Json
from tests.kubernetes.fake.responses import Response
from tests.kubernetes.fake.routes import Call
from tests.kubernetes.real.connection import Connection, read_lines

IDLE_SECONDS = 0.05
BAD_GATEWAY = 502


class Forwarder:
    """Dispatcher that has a real server answer, under the credentials of `connection`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def answer(self, call: Call, body: bytes, content_type: str) -> Response:
        """Have a call carried out. Raises ApiError if the server does not answer."""
        is_watch = call.verb == "watch"
        try:
            answer = self.connection.send(
                call.method, call.path, call.query, body or None, content_type, is_stream=is_watch
            )
            if is_watch and answer.status == 200:
                return Response(200, watch=ForwardedWatch(answer))
            data = answer.data
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(BAD_GATEWAY, "BadGateway", str(error)) from None
        headers = {name: answer.headers[name] for name in ("Retry-After", "Warning") if name in answer.headers}
        try:
            return Response(answer.status, json.loads(data), headers=headers)
        except ValueError:
            return Response(answer.status, text=data.decode(errors="replace"), headers=headers)


class ForwardedWatch:
    """Watch of a real server, read by a thread so that its reader here is not held up."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer
        self._events: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        """Events; None at the end."""
        self._is_closed = threading.Event()
        threading.Thread(target=self._read, name="forwarded watch", daemon=True).start()

    def events(self) -> Iterator[Json | None]:
        """Yield events as they come, and None whenever none has come for a while."""
        while not self._is_closed.is_set():
            try:
                event = self._events.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                yield None
                continue
            if event is None:
                return
            yield event

    def close(self) -> None:
        """End the watch."""
        if not self._is_closed.is_set():
            self._is_closed.set()
            self._answer.shutdown()

    def _read(self) -> None:
        try:
            for line in read_lines(self._answer):
                self._events.put(json.loads(line))
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            pass
        finally:
            self._events.put(None)
            self._answer.close()
