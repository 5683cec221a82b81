"""Clients that want to take the memory of a service, or keep others out of it."""

import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from service.settings import Settings
from tests.patience import PATIENCE_SECONDS
from tests.service.http.process import ServiceProcess, start_service
from tests.service.http.raw import connect, make_head

MAX_BYTES = 50 * 2**20
"""Memory that no attack may take."""
NUM_CONNECTIONS = 10_000

pytestmark = pytest.mark.slow


@pytest.fixture
def served(settings: Settings, tmp_path: Path) -> Iterator[ServiceProcess]:
    with start_service(settings, tmp_path) as process:
        assert httpx.get(f"{process.url}/healthz").status_code == 200
        yield process


def test_half_sent_bodies_without_a_key_take_no_memory(served: ServiceProcess) -> None:
    before = served.measure_memory()
    head = make_head("POST", "/v1/ingest/x", "x", content_type="application/json", content_length=str(2**24))
    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(connect(served.url))
            connection.send(head)
            connection.send_until_closed(b" " * 2**16, 2**24 - 1)
        assert served.measure_memory() - before < MAX_BYTES


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\n", b"POST /v1/jobs HTTP/1.1\r\nx: " + b"x" * 8192])
def test_ten_thousand_connections_take_little_memory_and_keep_nobody_out(served: ServiceProcess, sent: bytes) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < NUM_CONNECTIONS + 100:
        pytest.skip(f"this process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    address = urlsplit(served.url)
    before = served.measure_memory()
    may_end = threading.Event()

    def connect_many(stack: ExitStack) -> None:
        for _ in range(NUM_CONNECTIONS):
            if may_end.is_set():
                return
            server = (address.hostname, address.port)
            # From another address than the requests below: one alone may not open so many at once.
            connected = stack.enter_context(socket.create_connection(server, source_address=("127.0.0.2", 0)))
            try:
                connected.sendall(sent)
            except OSError:
                # The service has closed it already.
                continue

    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        attack = threading.Thread(target=connect_many, args=(stack,))
        attack.start()
        try:
            while attack.is_alive():
                assert httpx.get(f"{served.url}/healthz", timeout=10).status_code == 200
        finally:
            may_end.set()
            attack.join()
        assert served.measure_memory() - before < MAX_BYTES
        assert httpx.get(f"{served.url}/healthz", timeout=10).status_code == 200


def test_bodies_that_were_refused_are_not_kept(served: ServiceProcess) -> None:
    body = b"[" * 2**19 + b"]" * 2**19
    headers = {"Authorization": f"Bearer {served.admin_key}", "Content-Type": "application/json"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=PATIENCE_SECONDS) as client:

        def post(_: int) -> int:
            return client.post("/v1/jobs", content=body).status_code

        assert post(0) == 413
        before = served.measure_memory()
        with ThreadPoolExecutor(50) as pool:
            assert set(pool.map(post, range(100))) <= {413, 503}
        assert served.measure_memory() - before < MAX_BYTES
