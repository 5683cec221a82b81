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


def start(api: Api, job_id: str, owner: str | None = None, **progress: float) -> None:
    """Let a job hold its resources, as if it had been started."""
    with api.services.database.write() as session:
        job = session.get_one(Job, job_id)
        job.state, job.progress, job.owner = "RUNNING", progress, owner or job.owner


@on_both_databases
def test_a_waiting_job_says_who_holds_the_room_and_until_when(api: Api) -> None:
    large, small, waiting = (
        api.submit(name=name, resources={"workers_per_node": 1, "threads_per_worker": cores, "memory": "1GiB"})["id"]
        for name, cores in (("large", 3), ("small", 1), ("waiting", 2))
    )
    start(api, large, eta_seconds=600.0)
    start(api, small)
    first, second = get_place(api, waiting)["holders"]
    assert (first["id"], first["name"], first["num_cores"], first["memory_bytes"]) == (large, "large", 3, 2**30)
    left = datetime.fromisoformat(first["expected_end_at"]) - datetime.now(UTC)
    assert timedelta(seconds=500) < left <= timedelta(seconds=660)
    assert (second["id"], second["num_cores"], second["expected_end_at"]) == (small, 1, None)


def test_jobs_of_other_owners_that_hold_the_room_are_one_entry_without_names(api: Api) -> None:
    own, other, another, waiting = (api.submit(name=f"job-{number}")["id"] for number in range(4))
    resources = {"workers_per_node": 1, "threads_per_worker": 4, "memory": "1GiB"}
    waiting = api.submit(resources=resources)["id"]
    start(api, own)
    for job_id in (other, another):
        start(api, job_id, owner="somebody-else")
    holders = get_place(api, waiting)["holders"]
    assert [(holder["id"], holder["owner"], holder["num_jobs"]) for holder in holders] == [
        (own, "team", 1),
        (None, None, 2),
    ]
    assert (holders[1]["name"], holders[1]["num_cores"], holders[1]["memory_bytes"]) == (None, 2, 2 * 2**30)
    seen_by_admin = api.admin.get(f"/v1/jobs/{waiting}").json()["queue"]["holders"]
    assert {holder["id"] for holder in seen_by_admin} == {own, other, another}


def test_of_many_jobs_that_hold_the_room_the_largest_are_listed(api: Api) -> None:
    small = {"workers_per_node": 1, "threads_per_worker": 1, "memory": "256MiB"}
    running = [api.submit(resources=small)["id"] for _ in range(12)]
    waiting = api.submit(resources=WHOLE)["id"]
    for job_id in running:
        start(api, job_id)
    holders = get_place(api, waiting)["holders"]
    assert [holder["id"] is None for holder in holders] == [False] * 9 + [True]
    assert sum(holder["num_jobs"] for holder in holders) == 12


def test_nobody_holds_what_no_machine_has_or_what_is_free(api: Api) -> None:
    running, ready = api.submit(resources={**WHOLE, "threads_per_worker": 1})["id"], api.submit()["id"]
    start(api, running)
    assert get_place(api, ready)["holders"] == []


def test_of_a_used_up_quota_only_jobs_of_the_same_owner_hold_the_room(api: Api) -> None:
    assert api.admin.put("/v1/quotas/*", json={"num_running": 1}).status_code == 200
    own, other, waiting = (api.submit()["id"] for _ in range(3))
    start(api, own)
    start(api, other, owner="somebody-else")
    assert [holder["id"] for holder in get_place(api, waiting)["holders"]] == [own]
