"""A server that keeps all lines that are pushed to it, as the service does."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Name = tuple[int, str]
"""Rank and name of a stream."""


class LineServer(ThreadingHTTPServer):
    """Server on loopback that knows one token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = "first"
        self.lines: dict[Name, list[str]] = {}
        self.order: list[Name] = []
        """Streams in the order in which lines of theirs came."""
        self.refused: set[str] = set()
        """Lines that are no reports for this server."""
        self.num_unauthorized = 0
        self.fault: int | None = None
        """Status of all answers, such as that of an attempt that has ended; None: as it should be."""
        self.num_to_refuse = 0
        """Number of next posts that are answered by 503."""
        self.num_requests = self.largest_body_bytes = 0
        self.before_answer: Callable[[], None] = lambda: None
        """Called once lines are kept, before that is acknowledged."""

    @property
    def seqs(self) -> list[int]:
        """Numbers of the events of rank 0 that have come, in their order."""
        return [json.loads(line)["seq"] for line in self.lines.get((0, "events"), [])]

    def write_target(self, path: Path, *, shares_files: bool = False) -> None:
        """Write the push target of this server, with its present token."""
        url = f"http://127.0.0.1:{self.server_port}/v1/ingest/att_1"
        path.write_text(json.dumps({"url": url, "token": self.token, "shares_files": shares_files}))


class _Handler(BaseHTTPRequestHandler):
    server: LineServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        if not self._is_refused():
            query = parse_qs(urlsplit(self.path).query)
            name = int(query["rank"][0]), query["stream"][0]
            self._answer(200, {"acknowledged_seq": len(self.server.lines.get(name, []))})

    def do_POST(self) -> None:
        num_bytes = int(self.headers["Content-Length"])
        self.server.largest_body_bytes = max(self.server.largest_body_bytes, num_bytes)
        body = json.loads(self.rfile.read(num_bytes))
        if self._is_refused():
            return
        if self.server.num_to_refuse:
            self.server.num_to_refuse -= 1
            self._answer(503, {})
            return
        name = body["rank"], body["stream"]
        known = self.server.lines.setdefault(name, [])
        if body["first_seq"] > len(known) + 1:
            self._answer(409, {})
            return
        bad = [index for index, line in enumerate(body["lines"]) if line in self.server.refused]
        if bad:
            self._answer(422, {"errors": [{"field": f"lines.{bad[0]}", "message": "is no report"}]})
            return
        known += body["lines"][len(known) - body["first_seq"] + 1 :]
        self.server.order.append(name)
        self.server.before_answer()
        self._answer(200, {"acknowledged_seq": len(self.server.lines[name])})

    def _is_refused(self) -> bool:
        self.server.num_requests += 1
        if self.server.fault is not None:
            self._answer(self.server.fault, {})
            return True
        if self.headers["Authorization"] == f"Bearer {self.server.token}":
            return False
        self.server.num_unauthorized += 1
        self._answer(401, {})
        return True

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextmanager
def serve_lines() -> Iterator[LineServer]:
    server = LineServer()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
