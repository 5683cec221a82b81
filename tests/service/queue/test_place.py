"""Place of a waiting job in the queue, as `GET /v1/jobs/{id}` shows it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from service.queue.place import _round_up_to_minute
from service.store.models import Job
from tests.service.api import Api
from tests.service.databases import on_both_databases

WHOLE = {"workers_per_node": 1, "threads_per_worker": 4, "memory": "1GiB"}
"""All cores of the machine."""


def find_place(api: Api, job_id: str) -> dict[str, Any] | None:
    return api.viewer.get(f"/v1/jobs/{job_id}").json()["queue"]


def get_place(api: Api, job_id: str) -> dict[str, Any]:
    place = find_place(api, job_id)
    assert place is not None
    return place


@on_both_databases
def test_jobs_are_numbered_in_the_order_in_which_they_are_considered(api: Api) -> None:
    first, second, urgent = api.submit()["id"], api.submit()["id"], api.submit(priority=5)["id"]
    places = [get_place(api, job_id) for job_id in (urgent, first, second)]
    assert [place["position"] for place in places] == [1, 2, 3]


def test_a_job_that_waits_for_no_resources_has_no_place(api: Api) -> None:
    held, after, ended = api.submit()["id"], api.submit()["id"], api.submit()["id"]
    api.submitter.post(f"/v1/jobs/{held}/hold")
    api.submitter.post(f"/v1/jobs/{ended}/cancel")
    assert find_place(api, held) is None
    assert find_place(api, ended) is None
    place = get_place(api, after)
    assert place["position"] == 1


def test_a_job_waits_for_what_runs_until_that_is_expected_to_end(api: Api) -> None:
    running, waiting = (api.submit(resources=WHOLE)["id"] for _ in range(2))
    with api.services.database.write() as session:
        job = session.get_one(Job, running)
        job.state, job.progress = "RUNNING", {"eta_seconds": 600.0}
        asked_at = datetime.now(UTC)
    place = get_place(api, waiting)
    assert place["position"] == 1
    assert "cores" in place["waits_for"]
    start = datetime.fromisoformat(place["expected_start_at"])
    assert timedelta(seconds=600) <= start - asked_at < timedelta(seconds=600 + 60 + 250)
    assert (start.second, start.microsecond) == (0, 0)


def test_an_expected_start_is_never_before_the_time_that_was_computed() -> None:
    minute = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
    for late in (timedelta(0), timedelta(microseconds=1), timedelta(seconds=0.8), timedelta(seconds=59.9)):
        assert _round_up_to_minute(minute + late) == (minute + timedelta(minutes=1) if late else minute)


def test_no_start_is_expected_behind_a_run_of_unknown_length(api: Api) -> None:
    running, waiting = (api.submit(resources=WHOLE)["id"] for _ in range(2))
    with api.services.database.write() as session:
        session.get_one(Job, running).state = "RUNNING"
    place = get_place(api, waiting)
    assert place["expected_start_at"] is None


def test_a_job_whose_quota_is_used_up_is_not_expected_to_start_at_once(api: Api) -> None:
    small = {"workers_per_node": 1, "threads_per_worker": 1, "memory": "256MiB"}
    assert api.admin.put("/v1/quotas/*", json={"num_running": 1}).status_code == 200
    running, waiting = api.submit(resources=small)["id"], api.submit(resources=small)["id"]
    with api.services.database.write() as session:
        job = session.get_one(Job, running)
        job.state, job.progress = "RUNNING", {"eta_seconds": 600.0}
        asked_at = datetime.now(UTC)
    place = get_place(api, waiting)
    assert datetime.fromisoformat(place["expected_start_at"]) - asked_at >= timedelta(seconds=600)


@on_both_databases
def test_earlier_runs_tell_when_a_job_ends_that_has_not_told_yet(api: Api) -> None:
    earlier, running, waiting = (api.submit(resources=WHOLE)["id"] for _ in range(3))
    asked_at = datetime.now(UTC)
    with api.services.database.write() as session:
        job = session.get_one(Job, earlier)
        job.state, job.started_at, job.finished_at = "SUCCEEDED", asked_at - timedelta(seconds=900), asked_at
        job = session.get_one(Job, running)
        job.state, job.started_at = "RUNNING", asked_at - timedelta(seconds=100)
    place = get_place(api, waiting)
    start = datetime.fromisoformat(place["expected_start_at"])
    assert timedelta(seconds=800) <= start - asked_at < timedelta(seconds=800 + 60 + 10)
