"""HTTP transport of the client: adds the API key, retries if that is safe, and raises refusals as exceptions."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from service.client.connection import Connection
from service.client.errors import Problem, ServiceError, ServiceUnreachableError
from service.client.messages import Message, MessageDecoder
from service.client.waiting import OnSilence, Wait, begin_wait

Model = TypeVar("Model", bound=BaseModel)

RETRY_WAITS_SECONDS = (0.2, 0.4, 0.8)
RETRIED_STATUSES = frozenset({429, 502, 503, 504})
MAX_WAIT_SECONDS = 10.0
MIN_TRY_SECONDS = 0.1
"""Shortest time that a try has for an answer, however little is left of the whole wait."""

EVENT_STREAM = "text/event-stream"
STREAM_SILENCE_SECONDS = 45.0
"""Time without a byte after which a stream is cut: the service sends something every 15 s."""


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


@dataclass(frozen=True)
class RequestDescription:
    """Request that is yet to be sent."""

    arguments: dict[str, Any]
    """Arguments of httpx."""
    is_repeatable: bool
    is_stream: bool = False


class BaseTransport:
    """HTTP connection to one service, as far as it does not matter how it waits."""

    def __init__(self, connection: Connection, timeout_seconds: float, on_silence: OnSilence | None = None) -> None:
        """Prepare the connection.

        timeout_seconds: longest time that a request waits for an answer, over all its tries. on_silence: called if
        it waits for some seconds.
        """
        self._url = connection.url
        self._timeout_seconds = timeout_seconds
        self._on_silence = on_silence
        self._options: dict[str, Any] = {
            "base_url": connection.url,
            "headers": {"Authorization": f"Bearer {connection.api_key}"},
        }


class Transport(BaseTransport):
    """HTTP connection to one service."""

    def __init__(self, connection: Connection, timeout_seconds: float, on_silence: OnSilence | None = None) -> None:
        super().__init__(connection, timeout_seconds, on_silence)
        self._http = httpx.Client(**self._options)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Send a GET request, and return the answer. Retries if the service does not answer.

        params: query parameters; those that are None are omitted.
        """
        return self.send(describe_get(path, params))

    def head(self, path: str) -> Answer:
        """Send a HEAD request, and return the answer."""
        return self.send(RequestDescription({"method": "HEAD", "url": path}, is_repeatable=True))

    def stream(self, path: str, headers: Mapping[str, str]) -> httpx.Response:
        """Send a GET request, and return the answer, whose body is yet to be read. Retries until it begins."""
        request = RequestDescription({"method": "GET", "url": path, "headers": headers}, is_repeatable=True)
        return self._send(request, is_stream=True)

    def post(self, path: str, body: Mapping[str, Any] | None = None, idempotency_key: str | None = None) -> Answer:
        """Send a POST request, and return the answer.

        Retries only with an idempotency key, by which the service recognises a repeated request.
        """
        return self.send(describe_post(path, body, idempotency_key))

    def patch(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Send a PATCH request, which may be repeated: it sets values, whatever they were."""
        return self.send(describe_patch(path, body))

    def delete(self, path: str) -> Answer:
        return self.send(describe_delete(path))

    def send(self, request: RequestDescription) -> Answer:
        """Send a request, again if that is safe and helps, and return the answer."""
        return Answer(self._send(request))

    def open_stream(self, path: str, params: Mapping[str, Any], last_id: str | None) -> "Stream":
        """Open a stream after the message `last_id`; at its beginning if that is None."""
        return Stream(self._url, self._send(describe_stream(path, params, last_id), is_stream=True))

    def _send(self, request: RequestDescription, *, is_stream: bool = False) -> httpx.Response:
        wait = begin_wait(self._timeout_seconds, self._on_silence)
        tries = _Tries(self._url, wait, request)
        with wait.tell_of_silence(self._url):
            while True:
                try:
                    sent = self._http.build_request(timeout=tries.begin(), **request.arguments)
                    response = self._http.send(sent, stream=is_stream)
                    if is_stream and not response.is_success:
                        response.read()
                except httpx.RequestError as error:
                    tries.judge_error(error)
                else:
                    if tries.is_answer(response):
                        return response
                time.sleep(tries.pause_seconds)


class AsyncTransport(BaseTransport):
    """HTTP connection to one service, for programs with an event loop."""

    def __init__(self, connection: Connection, timeout_seconds: float, on_silence: OnSilence | None = None) -> None:
        super().__init__(connection, timeout_seconds, on_silence)
        # A program may have as many streams as it likes.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(limits=limits, **self._options)

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, request: RequestDescription) -> Answer:
        """Send a request, again if that is safe and helps, and return the answer."""
        return Answer(await self._send(request))

    async def open_stream(self, path: str, params: Mapping[str, Any], last_id: str | None) -> "AsyncStream":
        """Open a stream after the message `last_id`; at its beginning if that is None."""
        return AsyncStream(self._url, await self._send(describe_stream(path, params, last_id), is_stream=True))

    async def _send(self, request: RequestDescription, *, is_stream: bool = False) -> httpx.Response:
        wait = begin_wait(self._timeout_seconds, self._on_silence)
        tries = _Tries(self._url, wait, request)
        with wait.tell_of_silence(self._url):
            while True:
                try:
                    sent = self._http.build_request(timeout=tries.begin(), **request.arguments)
                    response = await self._http.send(sent, stream=is_stream)
                    if is_stream and not response.is_success:
                        await response.aread()
                except httpx.RequestError as error:
                    tries.judge_error(error)
                else:
                    if tries.is_answer(response):
                        return response
                await asyncio.sleep(tries.pause_seconds)


def describe_get(path: str, params: Mapping[str, Any] | None = None) -> RequestDescription:
    """Describe a GET request. params: query parameters; None ones are omitted."""
    query = {name: value for name, value in (params or {}).items() if value is not None}
    return RequestDescription({"method": "GET", "url": path, "params": query}, is_repeatable=True)


def describe_post(path: str, body: Mapping[str, Any] | None, idempotency_key: str | None) -> RequestDescription:
    """Describe a POST request. idempotency_key: key by which the service recognises it if it is repeated."""
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    arguments = {"method": "POST", "url": path, "json": body, "headers": headers}
    return RequestDescription(arguments, is_repeatable=idempotency_key is not None)


def describe_patch(path: str, body: Mapping[str, Any]) -> RequestDescription:
    return RequestDescription({"method": "PATCH", "url": path, "json": body}, is_repeatable=True)


def describe_delete(path: str) -> RequestDescription:
    return RequestDescription({"method": "DELETE", "url": path}, is_repeatable=False)


def describe_stream(path: str, params: Mapping[str, Any], last_id: str | None) -> RequestDescription:
    """Describe the request for a stream after the message `last_id`."""
    described = describe_get(path, params)
    headers = {"Accept": EVENT_STREAM, "Cache-Control": "no-store"} | ({"Last-Event-ID": last_id} if last_id else {})
    return RequestDescription({**described.arguments, "headers": headers}, is_repeatable=True, is_stream=True)


class _Tries:
    """Tries of one request: whether there is another one, and after which pause."""

    def __init__(self, url: str, wait: Wait, request: RequestDescription) -> None:
        self._url = url
        self._wait = wait
        self._request = request
        self._pauses = iter((*RETRY_WAITS_SECONDS, math.inf))
        self._try_seconds = 0.0
        self.pause_seconds = 0.0
        """Pause before the next try; infinite if there is none."""

    def begin(self) -> httpx.Timeout:
        """Begin the next try, and return its limits of time."""
        self.pause_seconds = next(self._pauses)
        self._try_seconds = max(self._wait.seconds_left, MIN_TRY_SECONDS)
        if self._request.is_stream:
            return httpx.Timeout(self._try_seconds, read=max(self._try_seconds, STREAM_SILENCE_SECONDS))
        return httpx.Timeout(self._try_seconds)

    def judge_error(self, error: httpx.RequestError) -> None:
        """Raise the error that the caller gets, unless there is another try."""
        if isinstance(error, httpx.DecodingError):
            raise _make_foreign_error(str(error.request.url), "what cannot be decoded") from None
        if not isinstance(error, httpx.TransportError):
            raise error
        # A request whose connection failed never reached the service, so any method may be repeated.
        may_repeat = self._request.is_repeatable or isinstance(error, httpx.ConnectError)
        if not may_repeat or self._wait.seconds_left <= self.pause_seconds:
            raise ServiceUnreachableError(self._url, name_cause(error, self._try_seconds)) from error

    def is_answer(self, response: httpx.Response) -> bool:
        """Whether a response is the answer; otherwise there is another try. Raises ServiceError for a refusal."""
        # The last pause is infinite, and stays so.
        self.pause_seconds = max(self.pause_seconds, _parse_retry_after(response))
        is_refused_for_now = self._request.is_repeatable and response.status_code in RETRIED_STATUSES
        if is_refused_for_now and self._wait.seconds_left > self.pause_seconds:
            return False
        if not response.is_success:
            raise ServiceError(_parse_problem(response))
        return True


@dataclass(frozen=True)
class Stream:
    """Open stream of a service."""

    url: str
    response: httpx.Response

    def read(self) -> Iterator[Message]:
        """Yield the messages until the stream ends. Raises ServiceUnreachableError if it is cut."""
        decoder = start_decoder(self.response)
        try:
            for part in self.response.iter_bytes():
                yield from decoder.feed(part)
        except httpx.TransportError as error:
            raise ServiceUnreachableError(self.url, name_cause(error, STREAM_SILENCE_SECONDS)) from error
        finally:
            self.response.close()


@dataclass(frozen=True)
class AsyncStream:
    """Open stream of a service, for programs with an event loop."""

    url: str
    response: httpx.Response

    async def read(self) -> AsyncIterator[Message]:
        """Yield the messages until the stream ends. Raises ServiceUnreachableError if it is cut."""
        decoder = start_decoder(self.response)
        try:
            async for part in self.response.aiter_bytes():
                for message in decoder.feed(part):
                    yield message
        except httpx.TransportError as error:
            raise ServiceUnreachableError(self.url, name_cause(error, STREAM_SILENCE_SECONDS)) from error
        finally:
            await self.response.aclose()


def start_decoder(response: httpx.Response) -> MessageDecoder:
    """Return the decoder of a stream. Raises ServiceError if the answer is none, such as the page of a proxy."""
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    if kind != EVENT_STREAM:
        raise _make_foreign_error(str(response.request.url), kind or "a body of unknown type")
    return MessageDecoder()


def name_cause(error: httpx.TransportError, try_seconds: float) -> Exception:
    """Return the error, or one that says how long nothing came: httpx itself only says that it timed out."""
    return TimeoutError(f"nothing for {try_seconds:.0f} s") if isinstance(error, httpx.TimeoutException) else error


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
