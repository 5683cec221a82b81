"""The queue in its order, as `GET /v1/queue` shows it."""

from typing import Any

from service.store.models import Job
from tests.service.api import Api, make_document
from tests.service.databases import on_both_databases
from tests.service.keys.holders import create_key

pytestmark = on_both_databases

WHOLE = {"workers_per_node": 1, "threads_per_worker": 4, "memory": "1GiB"}


def read_queue(client: Any, **query: Any) -> dict[str, Any]:
    return client.get("/v1/queue", params=query).json()


def test_the_queue_has_positions_reasons_and_starts_as_the_jobs_have_them(api: Api) -> None:
    running = api.submit(resources=WHOLE)["id"]
    with api.services.database.write() as session:
        job = session.get_one(Job, running)
        job.state, job.progress = "RUNNING", {"eta_seconds": 600.0}
    ids = [api.submit(resources=WHOLE, priority=priority)["id"] for priority in (0, 5, 0, -3, 5)]
    held = api.submit()["id"]
    api.submitter.post(f"/v1/jobs/{held}/hold")
    queue = read_queue(api.viewer)
    assert [job["id"] for job in queue["jobs"]] == [ids[number] for number in (1, 4, 0, 2, 3)]
    assert (queue["num_jobs"], queue["num_of_others"], queue["launcher"]) == (5, 0, "local")
    for job in queue["jobs"]:
        own = api.viewer.get(f"/v1/jobs/{job['id']}").json()
        assert [holder["id"] for holder in own["queue"].pop("holders")] == [running]
        assert own["queue"] == {name: job[name] for name in ("position", "waits_for", "expected_start_at")}
        assert (job["reason"], job["num_cores"]) == (own["reason"], 4)
    assert queue["jobs"][0]["expected_start_at"] is not None
    assert [job["position"] for job in read_queue(api.viewer, limit=2)["jobs"]] == [1, 2]


def test_jobs_of_other_owners_count_in_the_positions_and_are_not_shown(api: Api) -> None:
    with api.make_client(create_key(api, owner="ads", role="submitter")["key"]) as other:
        foreign = [other.post("/v1/jobs", json=make_document(priority=priority)).json()["id"] for priority in (5, 0)]
        own = api.submit()["id"]
        queue = read_queue(api.viewer)
        assert [(job["id"], job["position"]) for job in queue["jobs"]] == [(own, 3)]
        assert (queue["num_jobs"], queue["num_of_others"]) == (3, 2)
        assert not any(job_id in str(queue) for job_id in foreign)
        assert [job["position"] for job in read_queue(other)["jobs"]] == [1, 2]
    assert len(read_queue(api.admin)["jobs"]) == 3
