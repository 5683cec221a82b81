"""Connections: how fast one address opens them, their number, and the time that each may take."""

import socket
import threading
import time
from contextlib import ExitStack

import httpx
import pytest

from service.http.connections import ConnectionLimits
from service.settings import Settings
from tests.patience import PATIENCE_SECONDS
from tests.service.http.server import LARGE_BYTES, make_app, serve_app
from tests.service.raw import Connection, connect, make_head

SHORT_SECONDS = 0.2
FLOODER, OTHER = "127.0.0.2", "127.0.0.3"
"""Two addresses of this machine."""
PER_SECOND = 5.0
BURST = 50
"""Connections of ten seconds, which may come at once."""


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_a_connection_that_never_completes_its_headers_is_closed(sent: bytes) -> None:
    with serve_app(make_app(), ConnectionLimits(header_seconds=SHORT_SECONDS)) as url, connect(url) as connection:
        connection.send(sent)
        assert connection.read_to_end() == b""


def test_a_connection_that_sends_headers_forever_is_closed() -> None:
    with serve_app(make_app(), ConnectionLimits()) as url, connect(url) as connection:
        connection.send(b"GET / HTTP/1.1\r\n")
        connection.send(*[b"x-more: headers\r\n"] * 2000)
        assert connection.read_to_end().startswith(b"HTTP/1.1 400 ")


def test_a_second_request_has_as_little_time_for_its_headers() -> None:
    with serve_app(make_app(), ConnectionLimits(header_seconds=SHORT_SECONDS)) as url, connect(url) as connection:
        connection.send(make_head("GET", "/go"))
        assert connection.read_answer().status == 200
        connection.send(b"GET / HT")
        assert connection.read_to_end() == b""


def test_a_connection_without_requests_is_closed() -> None:
    with serve_app(make_app(), ConnectionLimits(idle_seconds=0)) as url, connect(url) as connection:
        connection.send(make_head("GET", "/go"))
        assert connection.read_answer().status == 200
        assert connection.read_to_end() == b""


def test_a_body_that_nobody_reads_holds_its_connection_no_longer_than_headers_may() -> None:
    with serve_app(make_app(), ConnectionLimits(header_seconds=SHORT_SECONDS)) as url, connect(url) as connection:
        connection.send(make_head("GET", "/go", content_length="1000"), b"x")
        assert connection.read_answer().status == 200
        connection.send(b"x")
        assert connection.read_to_end() == b""


def test_a_client_that_never_reads_its_answer_is_cut_off() -> None:
    with serve_app(make_app(), ConnectionLimits(answer_seconds=SHORT_SECONDS)) as url, connect(url) as connection:
        connection.send(make_head("GET", "/large"))
        connection.wait_until_reset()


def test_a_client_that_reads_gets_all_of_a_large_answer() -> None:
    with serve_app(make_app(), ConnectionLimits()) as url:
        assert len(httpx.get(f"{url}/large").content) == LARGE_BYTES


def test_a_client_that_reads_slowly_but_steadily_gets_all_of_a_download() -> None:
    limits = ConnectionLimits(answer_seconds=SHORT_SECONDS)
    with serve_app(make_app(), limits) as url, httpx.stream("GET", f"{url}/download") as answer:
        num_bytes = 0
        for part in answer.iter_raw(2**20):
            num_bytes += len(part)
            time.sleep(SHORT_SECONDS / 8)
    assert num_bytes == LARGE_BYTES


def test_connections_without_requests_make_room_for_those_with_requests() -> None:
    with serve_app(make_app(), ConnectionLimits(max_connections=5)) as url, ExitStack() as stack:
        silent = [stack.enter_context(connect(url)) for _ in range(20)]
        assert httpx.get(f"{url}/go").status_code == 200
        for connection in silent[:15]:
            assert connection.read_to_end() == b""


def test_requests_that_are_being_answered_keep_their_connections() -> None:
    is_waiting = threading.Event()
    app = make_app(is_waiting=is_waiting)
    with serve_app(app, ConnectionLimits(max_connections=5)) as url, ExitStack() as stack:
        waiting = stack.enter_context(connect(url))
        waiting.send(make_head("POST", "/v1/wait"))
        assert is_waiting.wait(PATIENCE_SECONDS)
        for _ in range(20):
            stack.enter_context(connect(url)).send(b"GET")
        assert httpx.get(f"{url}/go").status_code == 200
        assert waiting.read_answer().status == 200


def test_requests_sent_at_once_are_answered_in_turn() -> None:
    with serve_app(make_app(), ConnectionLimits()) as url, connect(url) as connection:
        connection.send(make_head("GET", "/go") * 3, make_head("GET", "/nothing", connection="close"))
        answers = connection.read_to_end()
        assert answers.count(b"HTTP/1.1 200 ") == 3
        assert answers.count(b"HTTP/1.1 404 ") == 1


def test_a_body_that_is_no_http_ends_the_connection_though_its_answer_is_being_sent() -> None:
    with serve_app(make_app(), ConnectionLimits()) as url, connect(url) as connection:
        connection.send(make_head("GET", "/large", transfer_encoding="chunked"))
        connection.wait_until_readable()
        connection.send(b"nonsense\r\n")
        connection.wait_until_reset()


def test_what_is_no_http_is_refused() -> None:
    with serve_app(make_app(), ConnectionLimits()) as url, connect(url) as connection:
        connection.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert connection.read_to_end().startswith(b"HTTP/1.1 400 ")


def ask_from(address: str, url: str, stack: ExitStack) -> bool:
    """Return whether a request over a new connection, which stays open as long as `stack`, is answered."""
    host, _, port = url.removeprefix("http://").partition(":")
    try:
        connected = socket.create_connection((host, int(port)), PATIENCE_SECONDS, source_address=(address, 0))
        connection = Connection(stack.enter_context(connected))
        connection.send(make_head("GET", "/go"))
        return connection.read_answer().status == 200
    except ConnectionError:
        return False


def make_settings(**values: str) -> Settings:
    return Settings.model_validate({"port": 0, "connections_per_second_per_address": PER_SECOND, **values})


def test_what_one_address_opens_too_fast_is_closed_and_others_are_served() -> None:
    with serve_app(make_app(), ConnectionLimits(), make_settings()) as url, ExitStack() as stack:
        start = time.monotonic()
        num_answered = sum(ask_from(FLOODER, url, stack) for _ in range(6 * BURST))
        most = BURST + (time.monotonic() - start) * PER_SECOND + 1
        assert BURST <= num_answered <= min(most, 6 * BURST - 1)
        assert ask_from(OTHER, url, stack)


def test_a_trusted_proxy_may_open_any_number() -> None:
    settings = make_settings(trusted_proxies=f"10.0.0.0/8, {FLOODER}")
    with serve_app(make_app(), ConnectionLimits(), settings) as url, ExitStack() as stack:
        assert all(ask_from(FLOODER, url, stack) for _ in range(6 * BURST))
