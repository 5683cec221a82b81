"""The service as a process: it runs until SIGTERM or SIGINT, and its jobs continue without it."""

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
from service.client.connection import ADMIN_KEY_FILE
from service.lock import lock_state
from service.observability.logs import configure_logging
from service.services import Services
from service.settings import Settings

SHUTDOWN_SECONDS = 5
"""Seconds that open requests have to finish at shutdown."""


class AddressError(Exception):
    """Error raised where the service cannot listen on its host and port."""


def serve(settings: Settings, ready_file: Path | None = None) -> None:
    """Run the service until SIGTERM or SIGINT. Must be called in the main thread.

    ready_file: file, readable only by its owner, to which {"url", "admin_key", "signin_link"} is written once the
    service accepts requests; admin_key is null unless this is the first start.
    Raises StateDirectoryError, its subclass AlreadyServingError, DatabaseUrlError, DatabaseUnusableError, and
    AddressError.
    """
    configure_logging(settings.log_format)
    with lock_state(settings), bind_socket(settings) as listener:
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        app = create_app(settings)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=SHUTDOWN_SECONDS, lifespan="on"
        )
        # When uvicorn has stopped, it raises the signal again for the handler installed before it. Here that handler
        # must do nothing.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _ignore_signal)
        _Server(config, lambda: _announce(app.state.services, ready_file)).run(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn server that calls `on_ready` once it accepts requests."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def bind_socket(settings: Settings) -> socket.socket:
    """Bind the socket to listen on, before anything else is started. Raises AddressError where that fails."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets with an explicit protocol; without it a request takes 40 ms longer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise AddressError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}; set DLRM_PORT (0 chooses a free "
            "port) or DLRM_HOST"
        ) from error
    return listener


def _ignore_signal(_: int, __: FrameType | None) -> None:
    return


def _announce(services: Services, ready_file: Path | None) -> None:
    """Print URL, sign-in link and, on the first start, the admin key; write them to the ready file too.

    Of several services that share a state directory, the ready file names the one that has started last.
    They go to stdout and never to the log, because they are secrets.
    """
    admin_key = services.keys.create_first_admin_key()
    url = services.settings.url
    signin_link = f"{url}/signin#token={services.keys.create_sign_in_token()}"
    if admin_key is not None:
        # Not in the ready file alone, which other services may overwrite that start at the same time.
        write_atomically(services.settings.state_directory / ADMIN_KEY_FILE, admin_key, mode=0o600)
    if ready_file is not None:
        content = {"url": url, "admin_key": admin_key, "signin_link": signin_link}
        write_atomically(ready_file, json.dumps(content), mode=0o600)
    lines = [f"serving on {url}", f"sign in (once, within 10 minutes): {signin_link}"]
    if admin_key is not None:
        lines.append(f"admin key (shown only now): {admin_key}")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
