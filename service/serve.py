"""The service as a process: it runs until SIGTERM or SIGINT, and its jobs continue without it."""

import gc
import json
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from dlrm.record import write_atomically
from service.app import Services, create_app, create_monitoring_app
from service.client.connection import ADMIN_KEY_FILE, ReadyFile
from service.http.connections import ConnectionLimits, Listener, make_protocol
from service.http.monitoring_port import MonitoringPort
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
    service accepts requests; admin_key is null unless this is the first start. It also has "monitoring_port" if there
    is one.
    Raises StateDirectoryError, its subclass AlreadyServingError, DatabaseUrlError, DatabaseUnusableError,
    KubernetesError, AccessTableError and AddressError.
    """
    configure_logging(settings.log_format)
    _raise_file_limit()
    for name, nearest in settings.find_unknown_variables(os.environ).items():
        hint = f"did you mean {nearest}?" if nearest else "docs/settings.md lists the settings"
        log.warning("unknown_setting", variable=name, hint=hint)
    with ExitStack() as stack:
        stack.enter_context(lock_state(settings))
        listeners = [stack.enter_context(bind_as_before(settings, ready_file))]
        ports = {"port": get_port(listeners[0])}
        if settings.monitoring_port is not None:
            listeners.append(stack.enter_context(bind_socket(settings, for_monitoring=True)))
            ports["monitoring_port"] = get_port(listeners[1])
        settings = settings.model_copy(update=ports)
        app = create_app(settings)
        server = make_server_config(add_monitoring(app, settings), trusted_proxies=settings.trusted_proxies)
        # When uvicorn has stopped, it raises the signal again for the handler installed before it. Here that handler
        # must do nothing.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _, __: None)

        services: Services = app.state.services

        def on_ready() -> None:
            _announce(services, ready_file)
            threading.Thread(target=app.state.render_openapi, name="openapi", daemon=True).start()

        _Server(server, on_ready, services.streams.feed.close).run(sockets=listeners)


def add_monitoring(app: FastAPI, settings: Settings) -> ASGIApp:
    """Return an application that answers the port for monitoring too, if there is one."""
    if settings.monitoring_port is None:
        return app
    return MonitoringPort(app, create_monitoring_app(app.state.services), settings.monitoring_port)


def get_port(listener: socket.socket) -> int:
    """Return the port that a socket is bound to."""
    return listener.getsockname()[1]


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
        # Others, which uvicorn would prefer if they are installed, would pass the limits of `Listener` by.
        loop="asyncio",
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


def bind_socket(settings: Settings, *, for_monitoring: bool = False) -> socket.socket:
    """Bind the socket to listen on, or the one of the port for monitoring, before anything else is started.

    Raises AddressError if that fails.
    """
    host, port, prefix = settings.host, settings.port, "DLRM"
    if for_monitoring:
        host, port, prefix = settings.monitoring_host, settings.monitoring_port or 0, "DLRM_MONITORING"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = Listener(family, settings.connections_per_second_per_address, settings.trusted_proxies)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise AddressError(
            f"cannot listen on {host} port {port}: {error.strerror}; set {prefix}_PORT (0 chooses a free port) or "
            f"{prefix}_HOST"
        ) from error
    return listener


def bind_as_before(settings: Settings, ready_file: Path | None) -> socket.socket:
    """Bind the socket to listen on; of any free port to the one of the last start, which clients still ask."""
    last = ReadyFile.read(ready_file) if settings.port == 0 and ready_file is not None else None
    if last is not None:
        with suppress(AddressError, ValueError):
            return bind_socket(settings.model_copy(update={"port": urlsplit(last.url).port or 0}))
    return bind_socket(settings)


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
        content: dict[str, str | int | None] = {"url": url, "admin_key": admin_key, "signin_link": signin_link}
        if services.settings.monitoring_port is not None:
            content["monitoring_port"] = services.settings.monitoring_port
        write_atomically(ready_file, json.dumps(content), mode=0o600)
    lines = [f"serving on {url}", f"sign in (once, within 10 minutes): {signin_link}"]
    if admin_key is not None:
        lines.append(f"admin key (shown only now): {admin_key}")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
