"""The client for programs with an event loop. It shares the operations of `Client`, and sends them in its own way."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, cast

from pydantic import BaseModel

from service.client.client import METRICS_PER_PAGE, Client, LogSearch, is_valid
from service.client.connection import find_connection
from service.client.download import OnProgress
from service.client.errors import ServiceError, ServiceUnreachableError
from service.client.following import JobState, Position, StreamUnusableError
from service.client.messages import Message
from service.client.patience import Patience
from service.client.transport import (
    Answer,
    AsyncTransport,
    RequestDescription,
    describe_delete,
    describe_get,
    describe_patch,
    describe_post,
)
from service.schemas import JobDetails, LogMatch, LogMatches, Metric, MetricPage, Page

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Operation:
    """Request of an operation, and how its answer is read."""

    request: RequestDescription
    read: Callable[[Answer], Any] = Answer.expect_nothing

    def parse(self, model: type[BaseModel]) -> "_Operation":
        def read(answer: Answer) -> BaseModel:
            return answer.parse(model)

        return replace(self, read=read)

    def expect_nothing(self) -> "_Operation":
        return self


@dataclass(frozen=True)
class _Listing:
    """Pages of a list."""

    path: str
    page_type: type[Page[Any]]
    params: Mapping[str, Any]


class _DescribingTransport:
    """Transport that describes requests instead of sending them."""

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> _Operation:
        return _Operation(describe_get(path, params))

    def post(self, path: str, body: Mapping[str, Any] | None = None, idempotency_key: str | None = None) -> _Operation:
        return _Operation(describe_post(path, body, idempotency_key))

    def patch(self, path: str, body: Mapping[str, Any]) -> _Operation:
        return _Operation(describe_patch(path, body))

    def delete(self, path: str) -> _Operation:
        return _Operation(describe_delete(path))


class _Describer(Client):
    """Client whose methods return what they would do."""

    def __init__(self) -> None:
        self._transport = cast("Any", _DescribingTransport())

    def _list_items(self, path: str, page_type: type[Page[Any]], **params: Any) -> Any:
        return _Listing(path, page_type, params)


_DESCRIBER = _Describer()


def _awaited(
    method: Callable[Concatenate[Client, Parameters], Result],
) -> Callable[Concatenate["AsyncClient", Parameters], Coroutine[Any, Any, Result]]:
    """Make the method of an operation from the one of `Client`."""

    @wraps(method)
    async def call(client: "AsyncClient", *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        operation = cast("_Operation", method(_DESCRIBER, *args, **kwargs))
        return operation.read(await client._transport.send(operation.request))  # pyright: ignore[reportPrivateUsage]

    return call


def _iterated(
    method: Callable[Concatenate[Client, Parameters], Iterator[Result]],
) -> Callable[Concatenate["AsyncClient", Parameters], AsyncGenerator[Result]]:
    """Make the method of a list from the one of `Client`."""

    @wraps(method)
    async def call(
        client: "AsyncClient", *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> AsyncGenerator[Result]:
        listing = cast("_Listing", method(_DESCRIBER, *args, **kwargs))
        pages = client._list_pages(listing.path, listing.page_type, **listing.params)  # pyright: ignore[reportPrivateUsage]
        async for page in pages:
            for item in page.items:
                yield item

    return call


class AsyncClient:
    """Client of one service with the methods of `Client`. Lists are asynchronous iterators."""

    def __init__(self, url: str | None = None, api_key: str | None = None, timeout_seconds: float = 30.0) -> None:
        """Connect to a service, see `Client`."""
        connection = find_connection(url, api_key)
        self.url = connection.url
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._transport = AsyncTransport(connection, timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    submit = _awaited(Client.submit)
    plan = _awaited(Client.plan)
    jobs = _iterated(Client.jobs)
    labels = _iterated(Client.labels)
    job = _awaited(Client.job)
    me = _awaited(Client.me)
    edit = _awaited(Client.edit)
    compare = _awaited(Client.compare)
    cancel = _awaited(Client.cancel)
    pause = _awaited(Client.pause)
    resume = _awaited(Client.resume)
    hold = _awaited(Client.hold)
    release = _awaited(Client.release)
    restart = _awaited(Client.restart)
    delete = _awaited(Client.delete)
    events = _iterated(Client.events)
    attempts = _iterated(Client.attempts)
    checkpoints = _iterated(Client.checkpoints)
    curves = _awaited(Client.curves)
    logs = _awaited(Client.logs)
    artifacts = _iterated(Client.artifacts)
    capacity = _awaited(Client.capacity)
    keys = _iterated(Client.keys)
    create_key = _awaited(Client.create_key)
    revoke_key = _awaited(Client.revoke_key)
    create_login_link = _awaited(Client.create_login_link)
    schedules = _iterated(Client.schedules)
    schedule = _awaited(Client.schedule)
    create_schedule = _awaited(Client.create_schedule)
    change_schedule = _awaited(Client.change_schedule)
    run_schedule = _awaited(Client.run_schedule)
    delete_schedule = _awaited(Client.delete_schedule)
    webhooks = _iterated(Client.webhooks)
    create_webhook = _awaited(Client.create_webhook)
    delete_webhook = _awaited(Client.delete_webhook)
    test_webhook = _awaited(Client.test_webhook)
    audit = _iterated(Client.audit)
    retention = _awaited(Client.retention)

    async def metrics(
        self,
        job_id: str,
        *,
        kind: Literal["step", "evaluation"] | None = None,
        attempt: int | None = None,
    ) -> AsyncIterator[Metric]:
        """Yield training steps and evaluations, see `Client.metrics`."""
        query = {"kind": kind, "attempt": attempt, "limit": METRICS_PER_PAGE}
        pages = [page async for page in self._list_pages(f"/v1/jobs/{job_id}/metrics", MetricPage, **query)]
        for item in (item for page in pages for item in page.items):
            if attempt is not None or is_valid(item, pages[-1].starts):
                yield item

    async def search_logs(
        self,
        job_id: str,
        text: str,
        *,
        attempt: int | None = None,
        rank: int | Literal["launch"] = 0,
        node: int | None = None,
    ) -> AsyncIterator[LogMatch]:
        """Yield the lines of one log that contain a text, see `Client.search_logs`."""
        search: LogSearch | None = LogSearch(job_id, text, attempt, rank, node)
        while search is not None:
            found = (await self._transport.send(describe_get(search.path, search.params))).parse(LogMatches)
            for match in found.items:
                yield match
            search = search.go_on(found)

    async def download(
        self,
        job_id: str,
        name: str = "model",
        to: Path | str | None = None,
        *,
        overwrite: bool = False,
        on_progress: OnProgress = lambda _, __: None,
        patience: Patience | None = None,
    ) -> Path:
        """Download an artifact in a thread, which calls `on_progress`, see `Client.download`."""

        def download() -> Path:
            with Client(self._connection.url, self._connection.api_key, self._timeout_seconds) as client:
                return client.download(
                    job_id, name, to, overwrite=overwrite, on_progress=on_progress, patience=patience
                )

        return await asyncio.to_thread(download)

    async def stream(
        self, job_id: str, *, last_id: str | None = None, events: bool = True, patience: Patience | None = None
    ) -> AsyncIterator[Message]:
        """Yield the messages of a job's stream, until it has ended, see `Client.stream`."""
        patience = patience or Patience()
        position = Position(last_id)
        path, params = f"/v1/jobs/{job_id}/stream", {"events": None if events else "false"}
        while not position.is_at_end:
            position.begin()
            stream = await patience.call_async(lambda: self._transport.open_stream(path, params, position.last_id))
            with contextlib.suppress(ServiceUnreachableError):
                async for message in stream.read():
                    position.note(message)
                    yield message

    async def follow(
        self, job_id: str, poll_seconds: float = 1.0, patience: Patience | None = None
    ) -> AsyncIterator[JobDetails]:
        """Yield the job now, and again after each change, until it has ended, see `Client.follow`."""
        job = await patience.call_async(lambda: self.job(job_id)) if patience else await self.job(job_id)
        yield job
        patience = patience or Patience()
        if job.has_ended:
            return
        state = JobState(job)
        try:
            async for message in self.stream(job_id, events=False, patience=patience):
                if (newer := state.add(message)) is not None:
                    yield newer
        except (ServiceError, StreamUnusableError):
            job, read = state.newest, partial(self.job, job_id)
            while not job.has_ended:
                await asyncio.sleep(poll_seconds)
                previous, job = job, await patience.call_async(read)
                if job != previous:
                    yield job

    async def _list_pages(self, path: str, page_type: type[Any], **params: Any) -> AsyncIterator[Any]:
        """Yield the pages of a list. Each is requested only once it is needed."""
        cursor: str | None = None
        while True:
            page = (await self._transport.send(describe_get(path, {**params, "cursor": cursor}))).parse(page_type)
            yield page
            if (cursor := page.next_cursor) is None:
                return
