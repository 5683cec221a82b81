"""HTTP transport of the client: adds the API key, retries if that is safe, and raises refusals as exceptions."""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from service.client.errors import Problem, ServiceError, ServiceUnreachableError
from service.client.messages import Message, MessageDecoder
from service.client.waiting import OnSilence, Wait, begin_wait
from service.client.wire import Wire

Model = TypeVar("Model", bound=BaseModel)

RETRY_WAITS_SECONDS = (0.2, 0.4, 0.8)
RETRIED_STATUSES = frozenset({429, 502, 503, 504})
MAX_WAIT_SECONDS = 10.0
MIN_TRY_SECONDS = 0.1
"""Shortest time that a try has for an answer, however little is left of the whole wait."""

EVENT_STREAM = "text/event-stream"
STREAM_SILENCE_SECONDS = 35.0
"""Time without a byte after which a stream is cut: the service sends something every 15 s."""


class Transport:
    """HTTP connection to one service. Its coroutines wait as its wire does."""

    def __init__(self, url: str, wire: Wire, timeout_seconds: float, on_silence: OnSilence | None = None) -> None:
        """Prepare the connection.

        timeout_seconds: longest time that a request waits for an answer, over all its tries. on_silence: called if
        it waits for some seconds.
        """
        self._url = url
        self._wire = wire
        self._timeout_seconds = timeout_seconds
        self._on_silence = on_silence
        self.sleep = wire.sleep
        self.close = wire.close

    async def get(self, model: type[Model], path: str, params: Mapping[str, Any] | None = None) -> Model:
        """Send a GET request, and return the answer. Retries if the service does not answer.

        params: query parameters; those that are None are omitted.
        """
        return _parse(model, await self._send("GET", path, params=_make_query(params)))

    async def get_tag(self, path: str) -> str:
        """Return the entity tag of what a path names."""
        return (await self._send("HEAD", path)).headers.get("etag", "")

    async def post(
        self, model: type[Model], path: str, body: Mapping[str, Any] | None = None, idempotency_key: str | None = None
    ) -> Model:
        """Send a POST request, and return the answer.

        Retries only with an idempotency key, by which the service recognises a repeated request.
        """
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return _parse(model, await self._send("POST", path, is_repeatable=bool(headers), json=body, headers=headers))

    async def patch(self, model: type[Model], path: str, body: Mapping[str, Any]) -> Model:
        """Send a PATCH request, which may be repeated: it sets values, whatever they were."""
        return _parse(model, await self._send("PATCH", path, json=body))

    async def delete(self, model: type[Model], path: str) -> Model:
        """Send a DELETE request, and return the answer."""
        return _parse(model, await self._send("DELETE", path, is_repeatable=False))

    async def remove(self, path: str) -> None:
        """Send a DELETE request, whose answer has no body. Raises ServiceError if there is one."""
        response = await self._send("DELETE", path, is_repeatable=False)
        if response.content:
            raise _make_foreign_error(response)

    async def open(
        self,
        path: str,
        headers: Mapping[str, str],
        params: Mapping[str, Any] | None = None,
        silence_seconds: float = 0.0,
    ) -> httpx.Response:
        """Send a GET request, and return the answer, for `read` to read its body. Retries until it begins.

        silence_seconds: time without a byte that is allowed, even if a request waits less for an answer.
        """
        return await self._send("GET", path, silence_seconds=silence_seconds, headers=headers, params=params)

    @asynccontextmanager
    async def read(self, response: httpx.Response) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Give the parts of a body, which is closed after the block. Raises ServiceUnreachableError if it is cut."""
        try:
            yield self._wire.iterate(response)
        except httpx.TransportError as error:
            seconds = response.request.extensions["timeout"]["read"]
            raise ServiceUnreachableError(self._url, _name_cause(error, seconds)) from error
        finally:
            await self._wire.end(response)

    async def open_stream(self, path: str, params: Mapping[str, Any], last_id: str | None) -> AsyncGenerator[Message]:
        """Open a stream after the message `last_id`, at its beginning if that is None, and return its messages.

        They raise ServiceUnreachableError if it is cut.
        """
        headers = {"Accept": EVENT_STREAM, "Cache-Control": "no-store"}
        headers |= {"Last-Event-ID": last_id} if last_id else {}
        return self._read_messages(await self.open(path, headers, _make_query(params), STREAM_SILENCE_SECONDS))

    async def _read_messages(self, response: httpx.Response) -> AsyncGenerator[Message]:
        async with self.read(response) as parts:
            if _get_content_type(response) != EVENT_STREAM:
                raise _make_foreign_error(response)
            decoder = MessageDecoder()
            async for part in parts:
                for message in decoder.feed(part):
                    yield message

    async def _send(
        self,
        method: str,
        path: str,
        *,
        is_repeatable: bool = True,
        silence_seconds: float | None = None,
        **arguments: Any,
    ) -> httpx.Response:
        """Send a request, again if that is safe and helps, and return the answer.

        silence_seconds: see `open`; None to read the body too. arguments: of httpx.
        """
        wait = begin_wait(self._timeout_seconds, self._on_silence)
        tries = _Tries(self._url, wait, silence_seconds or 0.0, is_repeatable)
        with wait.tell_of_silence(self._url):
            while True:
                try:
                    request = self._wire.http.build_request(method, path, timeout=tries.begin(), **arguments)
                    response = await self._wire.send(request, is_stream=silence_seconds is not None)
                except httpx.RequestError as error:
                    tries.judge_error(error)
                else:
                    if tries.is_answer(response):
                        return response
                await self.sleep(tries.pause_seconds)


def _make_query(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters that are not None, times as text."""
    given = {name: value for name, value in (params or {}).items() if value is not None}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in given.items()}


def _parse(model: type[Model], response: httpx.Response) -> Model:
    """Return the body of an answer as `model`. Raises ServiceError if it is none, as from a proxy."""
    try:
        return model.model_validate_json(response.content)
    except ValidationError:
        # Without its cause, which shows the body: that may have a new key in it.
        raise _make_foreign_error(response) from None


@dataclass
class _Tries:
    """Tries of one request: whether there is another one, and after which pause."""

    url: str
    wait: Wait
    silence_seconds: float
    is_repeatable: bool
    pause_seconds: float = 0.0
    """Pause before the next try; infinite if there is none."""
    _try_seconds: float = 0.0
    _pauses: Iterator[float] = field(default_factory=lambda: iter((*RETRY_WAITS_SECONDS, math.inf)))

    def begin(self) -> httpx.Timeout:
        """Begin the next try, and return its limits of time."""
        self.pause_seconds = next(self._pauses)
        self._try_seconds = max(self.wait.seconds_left, MIN_TRY_SECONDS)
        return httpx.Timeout(self._try_seconds, read=max(self._try_seconds, self.silence_seconds))

    def judge_error(self, error: httpx.RequestError) -> None:
        """Raise the error that the caller gets, unless there is another try."""
        if isinstance(error, httpx.DecodingError):
            raise _make_foreign_error(error) from None
        if not isinstance(error, httpx.TransportError):
            raise error
        # A request whose connection failed never reached the service, so any method may be repeated.
        may_repeat = self.is_repeatable or isinstance(error, httpx.ConnectError)
        if not may_repeat or self.wait.seconds_left <= self.pause_seconds:
            raise ServiceUnreachableError(self.url, _name_cause(error, self._try_seconds)) from error

    def is_answer(self, response: httpx.Response) -> bool:
        """Whether a response is the answer; otherwise there is another try. Raises ServiceError for a refusal."""
        asked = response.headers.get("Retry-After", "")
        # The last pause is infinite, and stays so.
        self.pause_seconds = max(self.pause_seconds, min(float(asked), MAX_WAIT_SECONDS) if asked.isdecimal() else 0.0)
        is_refused_for_now = self.is_repeatable and response.status_code in RETRIED_STATUSES
        if is_refused_for_now and self.wait.seconds_left > self.pause_seconds:
            return False
        if not response.is_success:
            raise ServiceError(_parse_problem(response))
        return True


def _name_cause(error: httpx.TransportError, try_seconds: float) -> Exception:
    """Return the error, or one that says how long nothing came: httpx itself only says that it timed out."""
    return TimeoutError(f"nothing for {try_seconds:.0f} s") if isinstance(error, httpx.TimeoutException) else error


def _get_content_type(response: httpx.Response) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0]


def _make_foreign_error(answer: httpx.Response | httpx.DecodingError) -> ServiceError:
    """Make the error for an answer with a good status that no service gives, such as a proxy's page."""
    is_read = isinstance(answer, httpx.Response)
    content = (_get_content_type(answer) or "a body of unknown type") if is_read else "what cannot be decoded"
    url = answer.request.url
    detail = f"{url} answered with {content}, as no DLRM service does; is this the address of the service (DLRM_URL)?"
    return ServiceError(Problem(status=200, detail=detail))


def _parse_problem(response: httpx.Response) -> Problem:
    """Parse the problem document of a refusal; build one from the status code if another program has answered."""
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        answer = f"{response.request.url} answered {response.status_code} {response.reason_phrase}"
        return Problem(status=response.status_code, detail=f"{answer}; is this the address of the service?")
