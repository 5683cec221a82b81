"""Port of its own for monitoring, whose requests another application answers."""

from starlette.types import ASGIApp, Receive, Scope, Send


class MonitoringPort:
    """ASGI application that answers the requests to one port with `monitoring`, and all others with `app`."""

    def __init__(self, app: ASGIApp, monitoring: ASGIApp, port: int) -> None:
        self._app = app
        self._monitoring = monitoring
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The server takes it from the connection, and no header changes it.
        is_monitoring = scope["type"] == "http" and (scope["server"] or ("", None))[1] == self._port
        await (self._monitoring if is_monitoring else self._app)(scope, receive, send)
