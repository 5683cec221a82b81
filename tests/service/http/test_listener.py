"""Connections that one network address makes too fast."""

import socket
import time
from contextlib import ExitStack

from service.http.connections import ConnectionLimits
from service.settings import Settings
from tests.patience import PATIENCE_SECONDS
from tests.service.http.server import make_app, serve_app
from tests.service.raw import Connection, make_head

FLOODER, OTHER = "127.0.0.2", "127.0.0.3"
"""Two addresses of this machine."""
PER_SECOND = 5.0
BURST = 50
"""Connections of ten seconds, which may come at once."""


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
