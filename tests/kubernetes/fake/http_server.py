"""HTTP side of the API server of a test: connections, streams and the faults of both."""

import socket
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.kubernetes.fake import faults
from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.faults import DroppedConnectionError, Fault, FaultPlan, WatchFault
from tests.kubernetes.fake.recorder import Recorder
from tests.kubernetes.fake.resources import Catalogue
from tests.kubernetes.fake.responses import Answerer, Response, Watch, error_response
from tests.kubernetes.fake.routes import Call, parse_call

TOKEN = "token-of-the-service"
STOP_SECONDS = 0.02
"""Pause in which the listening thread looks whether it shall stop."""


class HttpServer:
    """Server on 127.0.0.1 with a port of its own, which it keeps while it refuses connections."""

    def __init__(self, answerer: Answerer, catalogue: Catalogue) -> None:
        self.answerer = answerer
        self.catalogue = catalogue
        self.recorder = Recorder()
        self.faults = FaultPlan()
        self.stopping = threading.Event()
        self.crashes: list[str] = []
        """Tracebacks of requests that the fake could not answer: mistakes of its own."""
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start_listening()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_listening(self) -> None:
        """Accept connections."""
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = _Listener(("127.0.0.1", self.port), handler)
        self.port = self._server.server_address[1]
        arguments = (STOP_SECONDS,)
        threading.Thread(target=self._server.serve_forever, args=arguments, daemon=True, name="kubernetes").start()

    def stop_listening(self) -> None:
        """Refuse connections, and break those that there are."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            close_socket(connection)

    def stop(self) -> None:
        """Stop for good."""
        self.stopping.set()
        self.stop_listening()
        assert not self.crashes, self.crashes[0]

    def note_connection(self, connection: socket.socket, *, is_open: bool) -> None:
        """Note that a connection has come or gone."""
        with self._lock:
            (self._connections.add if is_open else self._connections.discard)(connection)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet: connections break on purpose here."""


def close_socket(connection: socket.socket) -> None:
    """Shut a connection down at once."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    """Requests of one connection."""

    owner: HttpServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self) -> None:
        """Note the connection."""
        super().setup()
        self.owner.note_connection(self.connection, is_open=True)

    def finish(self) -> None:
        """Forget the connection."""
        self.owner.note_connection(self.connection, is_open=False)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""

    def do_request(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            call = parse_call(self.command, self.path, self.owner.catalogue)
        except ApiError as error:
            self._send(error_response(error), [])
            return
        planned = self.owner.faults.take(call)
        try:
            response = self._answer(call, body, planned)
            is_lost = any(isinstance(fault, faults.LoseAnswer) for fault in planned)
            self.owner.recorder.note(call, 0 if is_lost else response.code)
            if is_lost:
                raise DroppedConnectionError
            self._send(response, planned)
        except (DroppedConnectionError, BrokenPipeError, ConnectionResetError):
            self._drop()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_request  # noqa: N815

    def _drop(self) -> None:
        self.close_connection = True
        close_socket(self.connection)

    def _answer(self, call: Call, body: bytes, planned: list[Fault]) -> Response:
        """Return the answer, after the faults that come before a call is carried out."""
        for fault in planned:
            if isinstance(fault, faults.Delay):
                self.owner.stopping.wait(fault.seconds)
            elif isinstance(fault, faults.DropRequest):
                raise DroppedConnectionError
            elif isinstance(fault, faults.Answer):
                if fault.is_plain_text:
                    return Response(fault.code, text=fault.message)
                return error_response(fault.to_error())
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise ApiError(401, "Unauthorized", "Unauthorized")
            content_type = (self.headers.get("Content-Type") or "").partition(";")[0]
            return self.owner.answerer.answer(call, body, content_type)
        except ApiError as error:
            return error_response(error)
        except Exception as error:
            self.owner.crashes.append(traceback.format_exc())
            return error_response(ApiError(500, "InternalError", f"the fake itself is wrong: {error!r}"))

    def _send(self, response: Response, planned: list[Fault]) -> None:
        if response.watch is not None:
            self._send_watch(response.watch, planned)
            return
        content = response.to_bytes()
        kind = "text/plain; charset=utf-8" if response.document is None else "application/json"
        self.send_response(response.code)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **response.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for fault in planned:
            if isinstance(fault, faults.TruncateAnswer):
                self.wfile.write(content[: fault.num_bytes])
                self.wfile.flush()
                raise DroppedConnectionError
        self.wfile.write(content)
        self.wfile.flush()

    def _send_watch(self, watch: Watch, planned: list[Fault]) -> None:
        fault = next((one for one in planned if isinstance(one, WatchFault)), WatchFault())
        try:
            self._send_stream(fault.lines(watch.events()))
        finally:
            watch.close()

    def _send_stream(self, lines: Iterator[bytes | None]) -> None:
        """Send pieces as they come, until they end, the client goes or the server stops."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for line in lines:
            if line is None:
                if self._is_client_gone():
                    self._drop()
                    return
                if self.owner.stopping.is_set():
                    break
                continue
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _is_client_gone(self) -> bool:
        """Whether the client has closed the connection."""
        self.connection.setblocking(False)
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.connection.setblocking(True)
