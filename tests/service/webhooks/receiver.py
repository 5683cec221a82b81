"""A real receiver of webhooks on loopback, which keeps what it gets."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """Receiver that answers with `statuses`, one after the other, and with the last one from then on."""

    url: str = ""
    statuses: list[int] = field(default_factory=lambda: [204])
    received: list[tuple[Message, bytes]] = field(default_factory=list)
    """Headers and bodies of all requests."""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.received]

    def check_signatures(self, secret: str) -> None:
        """Check every request by the formula of Standard Webhooks."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        assert len(key) == 32
        for headers, body in self.received:
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
            assert headers["webhook-signature"] == f"v1,{expected}"


@contextmanager
def run_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.received.append((self.headers, body))
            status = receiver.statuses.pop(0) if len(receiver.statuses) > 1 else receiver.statuses[0]
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("location", f"{receiver.url}/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield receiver
        server.shutdown()
        thread.join()
