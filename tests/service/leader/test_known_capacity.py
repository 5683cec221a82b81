"""A process that follows a leader with other resources than its own."""

import pytest

from service.capacity.known import dump_capacities
from service.launchers.protocol import Capacity, LauncherCapacity
from service.leader.leadership import Leadership, make_lock
from tests.service.api import Api, make_document
from tests.service.databases import on_both_databases

pytestmark = on_both_databases


@pytest.mark.parametrize(("num_cores", "fits"), [(2, False), (8, True)])
def test_jobs_are_accepted_by_what_the_leader_has(api: Api, num_cores: int, fits: bool) -> None:
    resources = {"workers_per_node": num_cores if fits else 3, "memory": "1GiB"}
    database, capacity = api.services.database, Capacity(num_cores, 4 * 2**30, 0)
    capacities = {"local": LauncherCapacity(capacity, capacity)}
    leader = Leadership(database, make_lock(database, lambda: None), 60.0, lambda: dump_capacities(capacities))
    assert leader.acquire()
    response = api.submitter.post("/v1/jobs", json=make_document(resources=resources))
    assert response.status_code == (201 if fits else 422), response.text
    assert api.viewer.get("/v1/capacity").json()["num_cores"] == num_cores
    assert f'dlrm_cores_free{{launcher="local"}} {num_cores}.0' in api.viewer.get("/metrics").text
    if fits:
        assert api.viewer.get(f"/v1/jobs/{response.json()['id']}").json()["queue"]["expected_start_at"]
    leader.resign()
