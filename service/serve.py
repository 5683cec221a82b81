"""Runs the service in this process until it is told to stop; jobs go on running without it."""

import json
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn

from dlrm.record import write_atomically
from service.app import create_app
from service.lock import exclusive
from service.observability.logs import configure_logging
from service.services import Services
from service.settings import Settings

SHUTDOWN_SECONDS = 5
"""What open requests have to finish."""


class AddressError(Exception):
    """The service cannot listen where it should."""


def serve(settings: Settings, ready_file: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT. Main thread only.

    ready_file: gets {"url", "admin_key", "signin_link"}, for its owner alone, once requests are answered; admin_key is
    null unless this is the first start.
    Raises StateDirectoryError, AlreadyServingError (one of those), AddressError.
    """
    configure_logging(settings.log_format)
    with exclusive(settings.state_directory), bound_socket(settings) as listening:
        settings = settings.model_copy(update={"port": listening.getsockname()[1]})
        app = create_app(settings)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=SHUTDOWN_SECONDS, lifespan="on"
        )
        # uvicorn passes the signal that ended it on to whoever listened before: here that means nothing more.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _already_stopping)
        _Server(config, lambda: _announce(app.state.services, ready_file)).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it answers."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def bound_socket(settings: Settings) -> socket.socket:
    """The socket to listen on, before anything else is begun. Raises AddressError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named; 40 ms a request otherwise.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        where = f"{settings.host} port {settings.port}"
        raise AddressError(
            f"cannot listen on {where}: {error.strerror}; set DLRM_PORT (0 takes a free port) or DLRM_HOST"
        ) from error
    return listening


def _already_stopping(_: int, __: FrameType | None) -> None:
    return


def _announce(services: Services, ready_file: Path | None) -> None:
    """Tell whoever started the service how to get in. Written to the terminal, never to the log."""
    admin_key = services.keys.first_admin_key()
    url = services.settings.url
    signin_link = f"{url}/signin#token={services.keys.sign_in_token()}"
    if ready_file is not None:
        content = {"url": url, "admin_key": admin_key, "signin_link": signin_link}
        write_atomically(ready_file, json.dumps(content), mode=0o600)
    lines = [f"serving on {url}", f"sign in, once, within 10 minutes: {signin_link}"]
    if admin_key is not None:
        lines.append(f"admin key, shown this once: {admin_key}")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
