"""Who holds the resources, as `GET /v1/capacity/use` shows it."""

from typing import Any

from service.capacity.known import dump_capacities
from service.launchers.protocol import Capacity, LauncherCapacity, NamedCapacity
from service.leader.leadership import Leadership, make_lock
from service.store.models import Attempt, Job
from tests.service.api import TEAM, Api, make_document
from tests.service.databases import on_both_databases
from tests.service.keys.holders import create_key

pytestmark = on_both_databases

TWO_CORES = {"workers_per_node": 2, "memory": "1GiB"}


def start_jobs(api: Api) -> None:
    """Start the jobs that there is room for."""
    api.services.control.run_once()


def submit_as(api: Api, owner: str, **changes: Any) -> str:
    key = create_key(api, owner=owner, role="submitter")["key"]
    with api.make_client(key) as client:
        return client.post("/v1/jobs", json=make_document(**changes)).json()["id"]


def test_owners_see_their_jobs_and_of_others_only_the_sum(api: Api) -> None:
    own = api.submit(resources=TWO_CORES)["id"]
    foreign = submit_as(api, "ads")
    start_jobs(api)
    waiting = api.submit(resources={"workers_per_node": 4, "memory": "1GiB"})["id"]
    seen = api.viewer.get("/v1/capacity/use").json()
    assert [(job["id"], job["num_cores"], job["memory_bytes"]) for job in seen["jobs"]] == [(own, 2, 2**30)]
    assert seen["others"] == {"num_jobs": 1, "num_cores": 1, "memory_bytes": 2**30, "num_gpus": 0}
    [owner] = seen["owners"]
    assert (owner["owner"], owner["num_jobs"], owner["num_cores"], owner["num_queued"]) == (TEAM, 1, 2, 1)
    assert foreign not in str(seen)
    assert "ads" not in str(seen)

    every = api.admin.get("/v1/capacity/use").json()
    assert [job["id"] for job in every["jobs"]] == [foreign, own]
    assert waiting not in str(every)
    assert every["others"]["num_jobs"] == 0
    assert [each["owner"] for each in every["owners"]] == ["ads", TEAM]


def test_a_job_on_several_machines_counts_on_each_of_them(api: Api) -> None:
    node = Capacity(8, 8 * 2**30, 0)
    named = tuple(NamedCapacity(f"node-{number}", node) for number in range(3))
    capacities = {"kubernetes": LauncherCapacity(node.times(3), node, is_fixed=False, nodes=named)}
    database = api.services.database
    leader = Leadership(database, make_lock(database, lambda: None), 60.0, lambda: dump_capacities(capacities))
    assert leader.acquire()
    ids = [api.submit(resources=TWO_CORES)["id"] for _ in range(2)]
    with database.write() as session:
        for job_id, nodes in zip(ids, ("node-0, node-1", "node-1"), strict=True):
            job = session.get_one(Job, job_id)
            job.launcher, job.num_nodes, job.state = "kubernetes", len(nodes.split(", ")), "RUNNING"
            attempt = {"id": job_id.replace("job", "att"), "job_id": job_id, "number": 1, "token_hash": ""}
            session.add(Attempt(**attempt, state="RUNNING", started_at=job.created_at, node=nodes))
    seen = api.viewer.get("/v1/capacity/use").json()
    assert [(each["name"], each["num_cores"], each["num_cores_used"]) for each in seen["nodes"]] == [
        ("node-0", 8, 2),
        ("node-1", 8, 4),
        ("node-2", 8, 0),
    ]
    leader.resign()
