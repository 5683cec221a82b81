"""HTTP transport of the client: adds the API key, retries if that is safe, and raises refusals as exceptions."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from service.client.connection import Connection
from service.client.errors import Problem, ServiceError, ServiceUnreachableError
from service.client.waiting import OnSilence, begin_wait

Model = TypeVar("Model", bound=BaseModel)

RETRY_WAITS_SECONDS = (0.2, 0.4, 0.8)
RETRIED_STATUSES = frozenset({429, 502, 503, 504})
MAX_WAIT_SECONDS = 10.0
MIN_TRY_SECONDS = 0.1
"""Shortest time that a try has for an answer, however little is left of the whole wait."""


@dataclass(frozen=True)
class Answer:
    """Answer of a service that has done what it was asked."""

    response: httpx.Response

    def parse(self, model: type[Model]) -> Model:
        """Return the body as `model`. Raises ServiceError if it is none, as from a proxy."""
        try:
            return model.model_validate_json(self.response.content)
        except ValidationError:
            # Without its cause, which shows the body: that may have a new key in it.
            raise self._make_foreign_error() from None

    def expect_nothing(self) -> None:
        """Raise ServiceError if there is a body."""
        if self.response.content:
            raise self._make_foreign_error()

    def _make_foreign_error(self) -> ServiceError:
        kind = self.response.headers.get("Content-Type", "").partition(";")[0] or "a body of unknown type"
        return _make_foreign_error(str(self.response.request.url), kind)


class Transport:
    """HTTP connection to one service."""

    def __init__(self, connection: Connection, timeout_seconds: float, on_silence: OnSilence | None = None) -> None:
        """Prepare the connection.

        timeout_seconds: longest time that a request waits for an answer, over all its tries. on_silence: called if
        it waits for some seconds.
        """
        self._url = connection.url
        self._timeout_seconds = timeout_seconds
        self._on_silence = on_silence
        headers = {"Authorization": f"Bearer {connection.api_key}"}
        self._http = httpx.Client(base_url=connection.url, headers=headers)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Send a GET request, and return the answer. Retries if the service does not answer.

        params: query parameters; those that are None are omitted.
        """
        query = {name: value for name, value in (params or {}).items() if value is not None}
        return self._send("GET", path, is_repeatable=True, params=query)

    def head(self, path: str) -> Answer:
        """Send a HEAD request, and return the answer. Retries if the service does not answer."""
        return self._send("HEAD", path, is_repeatable=True)

    def stream(self, path: str, headers: Mapping[str, str]) -> httpx.Response:
        """Send a GET request, and return the answer, whose body is yet to be read. Retries until it begins."""
        return self._send("GET", path, is_repeatable=True, streams=True, headers=headers).response

    def post(self, path: str, body: Mapping[str, Any] | None = None, idempotency_key: str | None = None) -> Answer:
        """Send a POST request, and return the answer.

        Retries only with an idempotency key, by which the service recognises a repeated request.
        """
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._send("POST", path, is_repeatable=idempotency_key is not None, json=body, headers=headers)

    def patch(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Send a PATCH request, which may be repeated: it sets values, whatever they were."""
        return self._send("PATCH", path, is_repeatable=True, json=body)

    def delete(self, path: str) -> Answer:
        return self._send("DELETE", path, is_repeatable=False)

    def _send(self, method: str, path: str, *, is_repeatable: bool, streams: bool = False, **arguments: Any) -> Answer:
        wait = begin_wait(self._timeout_seconds, self._on_silence)
        with wait.tell_of_silence(self._url):
            for pause_seconds in (*RETRY_WAITS_SECONDS, math.inf):
                try_seconds = max(wait.seconds_left, MIN_TRY_SECONDS)
                try:
                    request = self._http.build_request(method, path, timeout=try_seconds, **arguments)
                    response = self._http.send(request, stream=streams)
                    if not response.is_success:
                        response.read()
                except httpx.TransportError as error:
                    # A request whose connection failed never reached the service, so any method may be repeated.
                    may_repeat = is_repeatable or isinstance(error, httpx.ConnectError)
                    if not may_repeat or wait.seconds_left <= pause_seconds:
                        raise ServiceUnreachableError(self._url, _name_cause(error, try_seconds)) from error
                except httpx.DecodingError as error:
                    raise _make_foreign_error(str(error.request.url), "what cannot be decoded") from None
                else:
                    # The last pause is infinite, and stays so.
                    pause_seconds = max(pause_seconds, _parse_retry_after(response))  # noqa: PLW2901
                    is_refused_for_now = is_repeatable and response.status_code in RETRIED_STATUSES
                    if not is_refused_for_now or wait.seconds_left <= pause_seconds:
                        return _read_answer(response)
                time.sleep(pause_seconds)
        raise AssertionError("the last try returns or raises")


def _name_cause(error: httpx.TransportError, try_seconds: float) -> Exception:
    """Return the error, or one that says how long nothing came: httpx itself only says that it timed out."""
    return TimeoutError(f"nothing for {try_seconds:.0f} s") if isinstance(error, httpx.TimeoutException) else error


def _read_answer(response: httpx.Response) -> Answer:
    if response.is_success:
        return Answer(response)
    raise ServiceError(_parse_problem(response))


def _parse_retry_after(response: httpx.Response) -> float:
    retry_after = response.headers.get("Retry-After", "")
    return min(float(retry_after), MAX_WAIT_SECONDS) if retry_after.isdecimal() else 0.0


def _make_foreign_error(url: str, answer: str) -> ServiceError:
    """Make the error for an answer with a good status that no service gives, such as a proxy's page."""
    detail = f"{url} answered with {answer}, as no DLRM service does; is this the address of the service (DLRM_URL)?"
    return ServiceError(Problem(status=200, detail=detail))


def _parse_problem(response: httpx.Response) -> Problem:
    """Parse the problem document of a refusal; build one from the status code if another program has answered."""
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        answer = f"{response.request.url} answered {response.status_code} {response.reason_phrase}"
        return Problem(status=response.status_code, detail=f"{answer}; is this the address of the service?")
