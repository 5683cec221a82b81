"""The client with streams: over a restart of the service, and where there are none."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.access.principal import Role
from service.client import Client, Message, Problem, ServiceError, ServiceUnreachableError
from tests.patience import wait_until
from tests.service.api import Api, make_document, make_environment, make_settings
from tests.service.databases import lend_database, on_sqlite
from tests.service.service_process import ServiceProcess

pytestmark = on_sqlite


@pytest.fixture
def service(database_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServiceProcess]:
    with lend_database(database_kind, tmp_path / "state", request) as url:
        environment = make_environment(make_settings(tmp_path, url))
        with ServiceProcess(tmp_path / "process", environment, module="tests.service.chaos.shifted_service") as process:
            yield process


@pytest.fixture
def api_key(service: ServiceProcess, tmp_path: Path) -> str:
    return (tmp_path / "state" / "admin-key").read_text()


@pytest.mark.slow
def test_events_come_once_each_though_the_service_is_killed_and_started_again(
    service: ServiceProcess, api_key: str
) -> None:
    with Client(service.url, api_key) as client, Client(service.url, api_key) as follower:
        blocker = client.submit(make_document(resources={"workers_per_node": 4, "memory": "1GiB"}))
        job = client.submit(make_document(resources={"workers_per_node": 4, "memory": "1GiB"}))
        read: list[Message] = []
        followed: list[str] = []

        def listen() -> None:
            for message in follower.stream(job.id):
                read.append(message)

        def follow() -> None:
            for each in client.follow(job.id):
                followed.append(each.state)

        thread, other = threading.Thread(target=listen), threading.Thread(target=follow)
        thread.start()
        other.start()
        wait_until(lambda: read and followed)
        for _ in range(2):
            client.hold(job.id)
            service.kill()
            service.start()
            service.wait_until_ready()
            client.release(job.id)
        client.cancel(job.id)
        thread.join()
        other.join()
        ids = [message.last_id for message in read if message.name == "event"]
        assert ids == [str(event.id) for event in client.events(job.id)]
        assert [message.name for message in read].count("end") == 1
        assert followed[0] == "QUEUED"
        assert followed[-1] == "CANCELLED"
        client.cancel(blocker.id)


@pytest.mark.parametrize(
    "refusal",
    [
        ServiceError(Problem(status=404)),
        ServiceError(Problem(type="urn:dlrm:problem:too-busy", status=503)),
        ServiceUnreachableError("http://127.0.0.1", TimeoutError()),
    ],
)
def test_a_service_without_streams_is_polled(
    api: Api, monkeypatch: pytest.MonkeyPatch, refusal: ServiceError | ServiceUnreachableError
) -> None:
    job_id = api.submit()["id"]
    key = api.services.keys.create("follower", Role.VIEWER, "team").key
    with Client(api.url, key) as client:

        def refuse(*_: object) -> None:
            api.submitter.post(f"/v1/jobs/{job_id}/cancel")
            raise refusal

        monkeypatch.setattr(client._transport, "open_stream", refuse)
        assert [job.state for job in client.follow(job_id, 0.01)] == ["QUEUED", "CANCELLED"]


def test_streams_that_something_holds_back_are_given_up(api: Api) -> None:
    job_id = api.submit()["id"]
    key = api.services.keys.create("follower", Role.VIEWER, "team").key
    with Client(api.url, key) as client:
        # Its streams end without a message.
        followed = client.follow(job_id, 0.01)
        assert next(followed).state == "QUEUED"
        api.services.streams.feed.close()
        api.submitter.post(f"/v1/jobs/{job_id}/cancel")
        assert [job.state for job in followed] == ["CANCELLED"]
