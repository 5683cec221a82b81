"""The service as a process: it runs until SIGTERM or SIGINT, and its jobs continue without it."""

import gc
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import structlog
import uvicorn
from starlette.types import ASGIApp

from dlrm.record import write_atomically
from service.app import Services, create_app
from service.client.connection import ADMIN_KEY_FILE
from service.http.connections import ConnectionLimits, Listener, make_protocol
from service.lock import lock_state
from service.observability.logs import configure_logging
from service.settings import Settings

log = structlog.get_logger(__name__)

SHUTDOWN_SECONDS = 5
"""Seconds that open requests have to finish at shutdown."""


MAX_ACCEPTED_AT_ONCE = 64
"""Connections to accept before existing ones are read again: far fewer than there may be in all, so that a new one is
not taken for one that sends nothing."""
MAX_CONNECTIONS_TO_ACCEPT = 4096
"""Connections that the kernel keeps until they are accepted; of more, the clients try again after a second."""


class AddressError(Exception):
    """Error raised where the service cannot listen on its host and port."""


def serve(settings: Settings, ready_file: Path | None = None) -> None:
    """Run the service until SIGTERM or SIGINT. Must be called in the main thread.

    ready_file: file, readable only by its owner, to which {"url", "admin_key", "signin_link"} is written once the
    service accepts requests; admin_key is null unless this is the first start.
    Raises StateDirectoryError, its subclass AlreadyServingError, DatabaseUrlError, DatabaseUnusableError,
    KubernetesError and AddressError.
    """
    configure_logging(settings.log_format)
    _raise_file_limit()
    for name, nearest in settings.find_unknown_variables(os.environ).items():
        hint = f"did you mean {nearest}?" if nearest else "docs/settings.md lists the settings"
        log.warning("unknown_setting", variable=name, hint=hint)
    with lock_state(settings), bind_socket(settings) as listener:
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        app = create_app(settings)
        config = make_server_config(app, trusted_proxies=settings.trusted_proxies)
        # When uvicorn has stopped, it raises the signal again for the handler installed before it. Here that handler
        # must do nothing.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _, __: None)
        services: Services = app.state.services
        _Server(config, lambda: _announce(services, ready_file), services.streams.feed.close).run(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn server that calls `on_ready` once it accepts requests, and `on_stop` once it does so no more."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            # uvicorn has one figure for both.
            listener.listen(MAX_CONNECTIONS_TO_ACCEPT)
        if self.started:
            # What there is by now stays. Looking through it again and again would stop all threads for 0.1 to 0.2 s.
            gc.collect()
            gc.freeze()
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Streams would go on for as long as open requests have.
        self._on_stop()
        await super().shutdown(sockets)


def make_server_config(
    app: ASGIApp,
    limits: ConnectionLimits | None = None,
    lifespan: Literal["on", "off"] = "on",
    trusted_proxies: str = "",
) -> uvicorn.Config:
    """Make the configuration of a server of `app`.

    limits: None for the limits of this process. trusted_proxies: see `Settings`.
    """
    limits = limits or ConnectionLimits(max_connections=_choose_max_connections())
    return uvicorn.Config(
        app,
        http=make_protocol(limits),
        ws="none",
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=MAX_ACCEPTED_AT_ONCE,
        # Whoever reaches this port could claim another address in them.
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=trusted_proxies,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def _raise_file_limit() -> None:
    """Let this process open as many files as its connections need, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * ConnectionLimits.max_connections
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _choose_max_connections() -> int:
    """Leave half of the files that this process may open to the database and the control loop."""
    max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(ConnectionLimits.max_connections, max_files // 2)


def bind_socket(settings: Settings) -> socket.socket:
    """Bind the socket to listen on, before anything else is started. Raises AddressError if that fails."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = Listener(family, settings.connections_per_second_per_address, settings.trusted_proxies)
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


def _announce(services: Services, ready_file: Path | None) -> None:
    """Print URL, sign-in link and, on the first start, the admin key; write them to the ready file too.

    Of several services with the same state directory, the ready file names the one that has started last. They go to
    stdout and never to the log, because they are secrets.
    """
    admin_key = services.keys.ensure_admin()
    url = services.settings.url
    signin_link = f"{url}/signin#token={services.sessions.create_start_link()}"
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
