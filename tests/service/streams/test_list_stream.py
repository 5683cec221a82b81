"""The stream of the list of jobs."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from service.access.principal import Role
from service.app import create_services
from service.retention.rules import RetentionRules
from service.store.job_repository import JobRepository
from service.streams.reader import ChangeReader, Changes
from tests.patience import wait_until
from tests.service.api import Api, make_settings
from tests.service.databases import on_postgresql, on_sqlite
from tests.service.jobs.test_deletion import make_pace
from tests.service.retention.test_retention import add_job, make_retention
from tests.service.streams.listening import listen, parse, read_until


def test_a_list_is_streamed_as_its_jobs_change_and_leave_it(api: Api) -> None:
    with listen(api.viewer, "/v1/stream") as messages:
        read_until(messages, "reset")
        job = api.submit()
        assert parse(read_until(messages, "job", id=job["id"])[-1]) == api.viewer.get("/v1/jobs").json()["items"][0]
        api.submitter.post(f"/v1/jobs/{job['id']}/cancel")
        read_until(messages, "job", id=job["id"], state="CANCELLED")
        assert api.submitter.delete(f"/v1/jobs/{job['id']}").status_code == 202
        read_until(messages, "gone", id=job["id"])


def test_a_filtered_list_says_which_jobs_no_longer_match(api: Api) -> None:
    with listen(api.viewer, "/v1/stream?state=QUEUED&label=team:ads") as messages:
        read_until(messages, "reset")
        other, chosen = api.submit(labels={"team": "search"}), api.submit(labels={"team": "ads"})
        read = read_until(messages, "job", id=chosen["id"])
        assert {"id": other["id"]} not in [parse(message) for message in read if message.name == "job"]
        api.submitter.post(f"/v1/jobs/{chosen['id']}/cancel")
        read_until(messages, "gone", id=chosen["id"])


def test_a_client_that_comes_back_to_a_list_gets_what_changed_meanwhile(api: Api) -> None:
    with listen(api.viewer, "/v1/stream") as messages:
        first = api.submit()
        last_id = read_until(messages, "job", id=first["id"])[-1].last_id
    changed, deleted = api.submit(), api.submit()
    api.submitter.post(f"/v1/jobs/{deleted['id']}/cancel")
    api.submitter.delete(f"/v1/jobs/{deleted['id']}")
    with listen(api.viewer, f"/v1/stream?last_event_id={last_id}") as messages:
        read = read_until(messages, "gone", id=deleted["id"])
        if changed["id"] not in [parse(message)["id"] for message in read]:
            read += read_until(messages, "job", id=changed["id"])
    assert "reset" not in [message.name for message in read]


@on_sqlite
def test_a_list_that_begins_during_a_look_gets_what_it_found(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, read = api.services.streams.feed, ChangeReader.read
    with listen(api.viewer, "/v1/stream") as messages:
        first = api.submit()
        last_id = read_until(messages, "job", id=first["id"])[-1].last_id
    wait_until(lambda: feed.count_streams() == 0)
    has_read, goes_on = Event(), Event()

    def read_slowly(reader: ChangeReader, *arguments: Any) -> Changes:
        changes = read(reader, *arguments)
        if changes.job_ids:
            has_read.set()
            goes_on.wait()
        return changes

    monkeypatch.setattr(ChangeReader, "read", read_slowly)
    changed = api.submit()
    wait_until(has_read.is_set)
    with listen(api.viewer, f"/v1/stream?last_event_id={last_id}") as messages:
        wait_until(lambda: feed.count_streams() == 1)
        goes_on.set()
        read_until(messages, "job", id=changed["id"])


@on_sqlite
def test_a_place_of_another_process_begins_the_list_again(shared_api: Api) -> None:
    with listen(shared_api.viewer, "/v1/stream", **{"Last-Event-ID": "0123456789ab-7"}) as messages:
        assert next(messages).name == "reset"
    assert shared_api.viewer.get("/v1/stream?last_event_id=7").status_code == 422


@on_sqlite
def test_nobody_gets_the_jobs_of_another_owner(api: Api) -> None:
    key = api.services.keys.create("stranger", Role.SUBMITTER).key
    with api.make_client(key) as stranger, listen(stranger, "/v1/stream") as messages:
        read_until(messages, "reset")
        hidden = api.submit()
        api.submitter.post(f"/v1/jobs/{hidden['id']}/cancel")
        api.submitter.delete(f"/v1/jobs/{hidden['id']}")
        own = stranger.post("/v1/jobs", json={"data": {"train": ["day_*.tsv"]}, "resources": {"memory": "1GiB"}}).json()
        read = read_until(messages, "job", id=own["id"])
    assert hidden["id"] not in [parse(message)["id"] for message in read]


@on_sqlite
def test_jobs_that_retention_removes_leave_the_list(api: Api) -> None:
    job_id = add_job(api, days_ago=9)
    with listen(api.viewer, "/v1/stream") as messages:
        read_until(messages, "reset")
        make_retention(api, RetentionRules(days=1)).run(make_pace())
        read_until(messages, "gone", id=job_id)


@on_sqlite
def test_a_list_with_too_many_changes_at_once_is_read_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.streams.feed.MAX_JOBS", 2)
    jobs = [api.submit() for _ in range(5)]
    with listen(api.viewer, "/v1/stream") as messages:
        read_until(messages, "reset")
        with api.services.database.write() as session:
            for job in jobs:
                JobRepository(session).update(job["id"], message="changed")
        read_until(messages, "reset")


@on_postgresql
def test_changes_of_other_processes_are_streamed(api: Api, tmp_path: Path) -> None:
    directory = tmp_path / "other"
    directory.mkdir()
    other = create_services(make_settings(directory, api.services.settings.database_url))
    job = api.submit()
    for relay in (api.services.streams.relay, other.streams.relay):
        relay.start()
    with listen(api.viewer, "/v1/stream") as messages:
        read_until(messages, "reset")
        with other.database.write() as session:
            JobRepository(session).update(job["id"], message="changed elsewhere")
        read_until(messages, "job", id=job["id"], message="changed elsewhere")
    for relay in (api.services.streams.relay, other.streams.relay):
        relay.close()
    other.database.close()
