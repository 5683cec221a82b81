"""HTTP transport of the client: adds the API key, retries where that is safe, and raises refusals as exceptions."""

import time
from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import ValidationError

from service.client.connection import Connection
from service.client.errors import Problem, ServiceError, ServiceUnreachableError

RETRY_WAITS_SECONDS = (0.2, 0.4, 0.8)
RETRIED_STATUSES = frozenset({429, 502, 503, 504})
MAX_WAIT_SECONDS = 10.0


class Transport:
    """HTTP connection to one service."""

    def __init__(self, connection: Connection, timeout_seconds: float) -> None:
        self._url = connection.url
        self._http = httpx.Client(
            base_url=connection.url,
            headers={"Authorization": f"Bearer {connection.api_key}"},
            timeout=timeout_seconds,
        )

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> bytes:
        """Send a GET request, and return the response body. Retries where the service does not answer.

        params: query parameters; those that are None are omitted.
        """
        query = {name: value for name, value in (params or {}).items() if value is not None}
        return self._send("GET", path, is_repeatable=True, params=query)

    def post(self, path: str, body: Mapping[str, Any] | None = None, idempotency_key: str | None = None) -> bytes:
        """Send a POST request, and return the response body.

        Retries only with an idempotency key, by which the service recognises a repeated request.
        """
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._send("POST", path, is_repeatable=idempotency_key is not None, json=body, headers=headers)

    def delete(self, path: str) -> bytes:
        return self._send("DELETE", path, is_repeatable=False)

    def _send(self, method: str, path: str, *, is_repeatable: bool, **arguments: Any) -> bytes:
        for pause_seconds in RETRY_WAITS_SECONDS:
            retry_after_seconds = None
            try:
                response = self._http.request(method, path, **arguments)
            except httpx.TransportError as error:
                # A request whose connection failed never reached the service: it may be repeated, whatever its method.
                if not (is_repeatable or isinstance(error, httpx.ConnectError)):
                    raise ServiceUnreachableError(self._url, error) from error
            else:
                if not is_repeatable or response.status_code not in RETRIED_STATUSES:
                    return _read_content(response)
                retry_after_seconds = _parse_retry_after(response)
            time.sleep(retry_after_seconds or pause_seconds)
        try:
            return _read_content(self._http.request(method, path, **arguments))
        except httpx.TransportError as error:
            raise ServiceUnreachableError(self._url, error) from error


def _read_content(response: httpx.Response) -> bytes:
    if response.is_success:
        return response.content
    raise ServiceError(_parse_problem(response))


def _parse_retry_after(response: httpx.Response) -> float | None:
    retry_after = response.headers.get("Retry-After", "")
    return min(float(retry_after), MAX_WAIT_SECONDS) if retry_after.isdigit() else None


def _parse_problem(response: httpx.Response) -> Problem:
    """Parse the problem document of a refusal; build one from the status code where another program has answered."""
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        answer = f"{response.request.url} answered {response.status_code} {response.reason_phrase}"
        return Problem(status=response.status_code, detail=f"{answer}; is this the address of the service?")
