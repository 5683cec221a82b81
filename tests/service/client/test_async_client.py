"""The client for programs with an event loop."""

import asyncio
import inspect

import pytest

from service.access.principal import Role
from service.client import AsyncClient, Client, ServiceError, ServiceUnreachableError
from tests.service.api import Api, make_document
from tests.service.databases import on_sqlite


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


def test_a_service_that_is_not_there_is_named() -> None:
    async def run() -> None:
        async with AsyncClient("http://127.0.0.1:9", "dlrm_key") as client:
            with pytest.raises(ServiceUnreachableError, match="dlrm serve"):
                await client.job("job_1")

    asyncio.run(run())
