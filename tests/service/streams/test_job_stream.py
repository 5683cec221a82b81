"""The stream of one job."""

import errno
import time

import httpx
import pytest

from service.access.principal import Role
from service.reports.ingest import Stream, ingest
from service.store.job_repository import JobRepository
from service.store.models import Job
from service.store.run_facts import RunFacts
from service.streams import feed
from tests.made_reports import make_step_line
from tests.patience import wait_until
from tests.service.api import Api
from tests.service.control.rounds import run_until
from tests.service.databases import on_sqlite
from tests.service.reports.attempts import begin_next_attempt
from tests.service.streams.listening import list_ids, listen, parse, read_until

WHOLE = {"workers_per_node": 1, "threads_per_worker": 4, "memory": "1GiB"}
"""All cores of the machine."""


def test_a_job_is_streamed_to_its_end_with_every_event_and_the_last_state(api: Api) -> None:
    job_id = api.submit(labels={"behaviour": "succeed"})["id"]
    with listen(api.viewer, f"/v1/jobs/{job_id}/stream") as messages:
        read = read_until(messages, "job", state="QUEUED")
        ended = run_until(api.services, job_id, "SUCCEEDED")
        read += list(messages)
    assert list_ids(read) == [event["id"] for event in api.viewer.get(f"/v1/jobs/{job_id}/events").json()["items"]]
    assert read[-1].name == "end"
    assert parse(read[-1]) == {"state": "SUCCEEDED"}
    merged = {name: value for message in read if message.name == "job" for name, value in parse(message).items()}
    assert merged == api.viewer.get(f"/v1/jobs/{job_id}").json()
    assert ended.state == merged["state"]


def test_a_client_that_comes_back_gets_what_follows_its_last_event(api: Api) -> None:
    job_id = api.submit()["id"]
    api.submitter.post(f"/v1/jobs/{job_id}/hold")
    path = f"/v1/jobs/{job_id}/stream"
    with listen(api.viewer, path) as messages:
        first = read_until(messages, "event")
    last_id = first[-1].last_id
    assert last_id is not None
    api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    everything = [event["id"] for event in api.viewer.get(f"/v1/jobs/{job_id}/events").json()["items"]]
    with listen(api.viewer, path, **{"Last-Event-ID": last_id}) as messages:
        assert [*list_ids(first), *list_ids(list(messages))] == everything
    with listen(api.viewer, f"{path}?last_event_id={last_id}") as messages:
        assert [*list_ids(first), *list_ids(list(messages))] == everything


@on_sqlite
def test_a_stream_that_begins_while_the_feed_stops_gets_what_changes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LINGER_SECONDS", 0.8)
    monkeypatch.setattr(feed, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(feed, "TICK_SECONDS", 0.5)
    job_id = api.submit()["id"]
    for pause_seconds in (0.3, 0.5, 0.7):
        wait_until(lambda: api.services.streams.feed.count_streams() == 0)
        time.sleep(pause_seconds)
        with listen(api.viewer, f"/v1/jobs/{job_id}/stream") as messages:
            read_until(messages, "job")
            for action in ("hold", "release"):
                api.submitter.post(f"/v1/jobs/{job_id}/{action}")
                read_until(messages, "job", is_held=action == "hold")


def test_a_job_message_has_only_what_changed_and_new_steps_are_announced(api: Api) -> None:
    job_id = api.submit()["id"]
    attempt = begin_next_attempt(api, job_id)
    with listen(api.viewer, f"/v1/jobs/{job_id}/stream") as messages:
        first = parse(read_until(messages, "job")[-1])
        with api.services.database.write() as session:
            ingest(session, attempt, 0, Stream.METRICS, 1, [make_step_line(1)])
        assert parse(read_until(messages, "curves", step=1)[-1]) == {"attempt": 1, "step": 1}
        with api.services.database.write() as session:
            ingest(session, attempt, 0, Stream.METRICS, 2, [make_step_line(2)])
        changed = parse(read_until(messages, "job")[-1])
    assert first["spec"]["name"]
    assert set(changed) == {"progress"}
    assert changed["progress"]["step"] == 2


def test_a_waiting_job_moves_up_with_what_happens_to_others_and_each_reader_sees_its_own(api: Api) -> None:
    ahead, other, waiting = (api.submit(resources=WHOLE)["id"] for _ in range(3))
    with api.services.database.write() as session:
        job = session.get_one(Job, other)
        job.state, job.owner = "RUNNING", "somebody-else"
    path = f"/v1/jobs/{waiting}/stream"
    with listen(api.viewer, path) as by_owner, listen(api.admin, path) as by_admin:
        read_until(by_owner, "job", state="QUEUED")
        read_until(by_admin, "job", state="QUEUED")
        api.submitter.post(f"/v1/jobs/{ahead}/cancel")
        own_view, view_of_all = (parse(read_until(each, "job")[-1])["queue"] for each in (by_owner, by_admin))
    assert (own_view["position"], view_of_all["position"]) == (1, 1)
    assert [holder["id"] for holder in own_view["holders"]] == [None]
    assert [holder["id"] for holder in view_of_all["holders"]] == [other]


def test_lines_of_a_log_are_announced(api: Api) -> None:
    job_id = api.submit()["id"]
    attempt = begin_next_attempt(api, job_id)
    log = api.services.settings.runs_directory / job_id / f"attempt-{attempt.number}" / "logs" / "rank-0.log"
    with listen(api.viewer, f"/v1/jobs/{job_id}/stream") as messages:
        read_until(messages, "log", attempt=1)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("a line\n")
        read_until(messages, "log", attempt=1)


def test_the_stream_of_a_deleted_job_ends(api: Api) -> None:
    job_id = api.submit()["id"]
    with listen(api.viewer, f"/v1/jobs/{job_id}/stream") as messages:
        read_until(messages, "job")
        with api.services.database.write() as session:
            jobs = JobRepository(session)
            jobs.update(job_id, deleting_at=jobs.lock(job_id).created_at)
        assert parse(list(messages)[-1]) == {"state": None}


@on_sqlite
@pytest.mark.parametrize("last_id", ["x", "-1", "1.5", "99999", "9" * 40])
def test_an_unknown_last_event_is_refused(shared_api: Api, last_id: str) -> None:
    job_id = shared_api.submit()["id"]
    response = shared_api.viewer.get(f"/v1/jobs/{job_id}/stream", headers={"Last-Event-ID": last_id})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "last_event_id"


@on_sqlite
def test_a_job_of_another_owner_has_no_stream(shared_api: Api) -> None:
    job_id = shared_api.submit()["id"]
    key = shared_api.services.keys.create("stranger", Role.VIEWER).key
    with shared_api.make_client(key) as stranger:
        assert stranger.get(f"/v1/jobs/{job_id}/stream").status_code == 404


@on_sqlite
def test_the_headers_of_a_stream_keep_proxies_from_collecting_it(shared_api: Api) -> None:
    job_id = shared_api.submit()["id"]
    response = shared_api.viewer.head(f"/v1/jobs/{job_id}/stream")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"


@on_sqlite
def test_a_stream_ends_once_its_key_is_revoked(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.streams.messages.CHECK_SECONDS", 0.0)
    job_id = api.submit()["id"]
    key = api.admin.post("/v1/keys", json={"name": "brief", "role": "viewer", "owner": "team"}).json()
    with api.make_client(key["key"]) as client, listen(client, f"/v1/jobs/{job_id}/stream") as messages:
        read_until(messages, "job")
        assert api.admin.delete(f"/v1/keys/{key['id']}").status_code == 204
        api.submitter.post(f"/v1/jobs/{job_id}/hold")
        assert [message.name for message in messages if message.name == "end"] == []


@on_sqlite
def test_a_quiet_stream_has_heartbeats(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.streams.messages.HEARTBEAT_SECONDS", 0.05)
    job_id = api.submit()["id"]
    with api.viewer.stream("GET", f"/v1/jobs/{job_id}/stream") as response:
        parts = response.iter_raw()
        for _ in range(3):
            while next(parts) != b": \n\n":
                pass


@on_sqlite
def test_streams_end_when_the_service_stops(api: Api) -> None:
    job_id = api.submit()["id"]
    with listen(api.viewer, f"/v1/jobs/{job_id}/stream") as messages:
        read_until(messages, "job")
        api.services.streams.feed.close()
        assert [message.name for message in messages if message.name == "end"] == []


@on_sqlite
def test_a_stream_whose_client_has_left_is_forgotten(api: Api) -> None:
    job_id = api.submit()["id"]
    with (
        httpx.Client(base_url=api.url, headers=api.viewer.headers) as client,
        listen(client, f"/v1/jobs/{job_id}/stream") as messages,
    ):
        read_until(messages, "job")
        assert api.services.streams.feed._job_watchers
    wait_until(lambda: not api.services.streams.feed._job_watchers)


@on_sqlite
def test_a_job_whose_files_cannot_be_read_holds_up_no_other_stream(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = api.submit()["id"], api.submit()["id"]
    begin_next_attempt(api, bad)
    measure = RunFacts.measure_logs

    def measure_good(facts: RunFacts, job: Job) -> int:
        if job.id == bad:
            raise OSError(errno.ESTALE, "Stale file handle")
        return measure(facts, job)

    monkeypatch.setattr(RunFacts, "measure_logs", measure_good)
    with listen(api.viewer, f"/v1/jobs/{bad}/stream"), listen(api.viewer, f"/v1/jobs/{good}/stream") as messages:
        read_until(messages, "job")
        api.submitter.post(f"/v1/jobs/{good}/hold")
        read_until(messages, "job", is_held=True)
