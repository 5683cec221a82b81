"""The client for programs with an event loop."""

import asyncio
import inspect

import pytest

from service.access.principal import Role
from service.client import AsyncClient, Client, ServiceError
from tests.patience import PATIENCE_SECONDS
from tests.service.api import Api, make_document
from tests.service.databases import on_sqlite
from tests.service.raw import get_key


def test_every_operation_of_the_client_is_there() -> None:
    names = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert names == {
        name for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction) if not name.startswith("_")
    }


@on_sqlite
def test_jobs_are_submitted_listed_and_followed_side_by_side(api: Api) -> None:
    key = api.services.keys.create("asynchronous", Role.SUBMITTER, "team").key

    async def run() -> None:
        async with AsyncClient(api.url, key) as client:
            jobs = await asyncio.gather(*(client.submit(make_document()) for _ in range(3)))
            assert {job.id async for job in client.jobs()} == {job.id for job in jobs}
            follows = [asyncio.create_task(follow(client, job.id)) for job in jobs]
            for job in jobs:
                await client.hold(job.id)
                await client.cancel(job.id)
            for states in await asyncio.gather(*follows):
                assert states[-1] == "CANCELLED"
            messages = [message async for message in client.stream(jobs[0].id)]
            ids = [message.last_id for message in messages if message.name == "event"]
            assert ids == [str(event.id) async for event in client.events(jobs[0].id)]
            assert messages[-1].name == "end"
            assert [metric async for metric in client.metrics(jobs[0].id)] == []
            with pytest.raises(ServiceError, match="job_nowhere"):
                await client.job("job_nowhere")

    asyncio.run(run())


async def follow(client: AsyncClient, job_id: str) -> list[str]:
    return [job.state async for job in client.follow(job_id)]


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_stream_is_closed_once_its_reader_is_cancelled_or_has_left_it(*, is_cancelled: bool) -> None:
    async def run() -> None:
        begun, closed = asyncio.Event(), asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: job\ndata: {}\n\n")
            await reader.read()
            closed.set()
            writer.close()

        async def read(client: AsyncClient) -> None:
            async for message in client.stream("job_1"):
                assert message.name == "job"
                begun.set()
                if not is_cancelled:
                    break

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server, AsyncClient(f"http://{host}:{port}", "dlrm_key") as client:
            reading = asyncio.create_task(read(client))
            await begun.wait()
            if is_cancelled:
                reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled() == is_cancelled
            await asyncio.wait_for(closed.wait(), PATIENCE_SECONDS)

    asyncio.run(run())


@on_sqlite
def test_the_client_that_blocks_works_where_an_event_loop_runs(api: Api) -> None:
    job_ids = {api.submit()["id"] for _ in range(2)}

    async def run() -> None:
        with Client(api.url, get_key(api.viewer.headers)) as client:
            assert next(client.jobs()).id in job_ids
            assert {job.id for job in client.jobs()} == job_ids
            assert next(client.follow(job_ids.pop())).state == "QUEUED"

    asyncio.run(run())
