"""HTTP side of the fake API server: connections, streams and the faults of both."""

import socket
import threading
import time
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.kubernetes.fake import faults
from tests.kubernetes.fake.dispatch import Dispatcher, Response, error_response
from tests.kubernetes.fake.errors import ApiError, PageNotFoundError
from tests.kubernetes.fake.faults import DroppedConnectionError, Fault, FaultPlan, WatchFault
from tests.kubernetes.fake.rbac import Authoriser
from tests.kubernetes.fake.recorder import Recorder
from tests.kubernetes.fake.resources import Catalogue
from tests.kubernetes.fake.routes import Call, parse_call
from tests.kubernetes.fake.watches import WatchStream

MAX_BODY_BYTES = 3 * 1024 * 1024
STOP_SECONDS = 0.02
"""Pause in which the listening thread looks whether it shall stop."""


class HttpServer:
    """Server on 127.0.0.1 with a port of its own, which it keeps while it refuses connections."""

    def __init__(self, dispatcher: Dispatcher, catalogue: Catalogue, authoriser: Authoriser, token: str) -> None:
        self.dispatcher = dispatcher
        self.catalogue = catalogue
        self.authoriser = authoriser
        self.token = token
        self.recorder = Recorder()
        self.faults = FaultPlan()
        self.stopping = threading.Event()
        self.crashes: list[str] = []
        """Tracebacks of requests that the fake could not answer: mistakes of its own."""
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._watches: set[WatchStream] = set()
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
        threading.Thread(target=self._server.serve_forever, args=arguments, daemon=True, name="fake-kubernetes").start()

    def stop_listening(self) -> None:
        """Refuse connections, and break those that there are."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        self.drop_connections()

    def drop_connections(self) -> None:
        """Shut all connections down."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            close_socket(connection)

    def stop(self) -> None:
        """Stop for good."""
        self.stopping.set()
        self.end_watches()
        self.stop_listening()
        assert not self.crashes, self.crashes[0]

    def end_watches(self) -> None:
        """End all watches in good order, as the server does when their time is over."""
        for watch in self.running_watches():
            watch.close()

    def send_bookmarks(self) -> None:
        """Send a bookmark to all watches that allow them."""
        for watch in self.running_watches():
            watch.send_bookmark()

    def running_watches(self) -> list[WatchStream]:
        """Return the watches that are open."""
        with self._lock:
            return list(self._watches)

    def note_connection(self, connection: socket.socket, is_open: bool) -> None:
        """Note that a connection has come or gone."""
        with self._lock:
            (self._connections.add if is_open else self._connections.discard)(connection)

    def note_watch(self, watch: WatchStream, is_open: bool) -> None:
        """Note that a watch has begun or ended."""
        with self._lock:
            (self._watches.add if is_open else self._watches.discard)(watch)


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
        except PageNotFoundError:
            self._send(Response(404, text="404 page not found\n"), [])
            return
        except ApiError as error:
            self._send(error_response(error), [])
            return
        planned = self.owner.faults.take(call)
        status = 0
        try:
            response = self._answer(call, body, planned)
            status = response.code
            if any(isinstance(fault, faults.LoseAnswer) for fault in planned):
                raise DroppedConnectionError
            self._note(call, status, body)
            self._send(response, planned)
        except DroppedConnectionError:
            if status == 0 or any(isinstance(fault, faults.LoseAnswer) for fault in planned):
                self._note(call, 0, body)
            self._drop()
        except (BrokenPipeError, ConnectionResetError):
            self._drop()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_request  # noqa: N815

    def _note(self, call: Call, status: int, body: bytes) -> None:
        self.owner.recorder.note(call, status, body, dict(self.headers))

    def _drop(self) -> None:
        self.close_connection = True
        close_socket(self.connection)

    def _answer(self, call: Call, body: bytes, planned: list[Fault]) -> Response:
        """Return the answer, after the faults that come before a call is carried out."""
        for fault in planned:
            if isinstance(fault, faults.Delay):
                self.owner.stopping.wait(fault.seconds)
            elif isinstance(fault, faults.Hang):
                self._wait_for_end()
                raise DroppedConnectionError
            elif isinstance(fault, faults.DropRequest):
                raise DroppedConnectionError
            elif isinstance(fault, faults.Interfere):
                fault.action(call)
            elif isinstance(fault, faults.Answer):
                if fault.is_plain_text:
                    return Response(fault.code, text=fault.message)
                return error_response(fault.to_error())
        try:
            self.owner.authoriser.check(call, is_anonymous=not self._has_token())
            if len(body) > MAX_BODY_BYTES:
                raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY_BYTES}")
            content_type = (self.headers.get("Content-Type") or "").partition(";")[0]
            return self.owner.dispatcher.answer(call, body, content_type)
        except ApiError as error:
            return error_response(error)
        except PageNotFoundError:
            return Response(404, text="404 page not found\n")
        except Exception as error:
            self.owner.crashes.append(traceback.format_exc())
            return error_response(ApiError(500, "InternalError", f"the fake itself is wrong: {error!r}"))

    def _has_token(self) -> bool:
        """Whether the request comes with the token. Raises 401 for a wrong one."""
        given = self.headers.get("Authorization")
        if given not in (None, f"Bearer {self.owner.token}"):
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return given is not None

    def _send(self, response: Response, planned: list[Fault]) -> None:
        if response.watch is not None:
            self._send_watch(response.watch, planned)
            return
        if response.log is not None:
            self._send_stream(response.log, "text/plain")
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
            if isinstance(fault, faults.SlowAnswer):
                for start in range(0, len(content), fault.num_bytes):
                    self.wfile.write(content[start : start + fault.num_bytes])
                    self.wfile.flush()
                    time.sleep(fault.pause_seconds)
                return
        self.wfile.write(content)
        self.wfile.flush()

    def _send_watch(self, watch: WatchStream, planned: list[Fault]) -> None:
        fault = next((one for one in planned if isinstance(one, WatchFault)), WatchFault())
        self.owner.note_watch(watch, is_open=True)
        try:
            self._send_stream(fault.lines(watch.events()), "application/json")
        finally:
            self.owner.note_watch(watch, is_open=False)
            watch.close()

    def _send_stream(self, lines: Iterator[bytes | None], kind: str) -> None:
        """Send pieces as they come, until they end, the client goes or the server stops."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for line in lines:
            if line is None:
                if self.owner.stopping.is_set() or self._is_client_gone():
                    self._drop()
                    return
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

    def _wait_for_end(self) -> None:
        while not self.owner.stopping.wait(0.02) and not self._is_client_gone():
            pass
