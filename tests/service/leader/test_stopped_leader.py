"""A leader that is stopped as a whole: real processes of the service on PostgreSQL, with short leases."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from service.database import Database
from service.launchers.processes import kill_all
from tests.patience import wait_until
from tests.service.api import make_client, make_document, make_environment, make_settings
from tests.service.chaos.journal import count_starts, read_overlaps
from tests.service.chaos.test_chaos import write_trainer
from tests.service.databases import lend_database
from tests.service.service_process import ServiceProcess, find_workers

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)]

CLOCK_OFFSET_SECONDS = 300.0
"""How far the clock of the second process is off."""


@dataclass
class Pair:
    """Two processes of a service, the first of which led at the beginning."""

    first: ServiceProcess
    second: ServiceProcess
    admin: httpx.Client
    """Client of the second one."""
    database: Database
    runs: Path

    def submit(self, behaviour: str) -> str:
        response = self.admin.post("/v1/jobs", json=make_document(behaviour))
        assert response.status_code == 201, response.text
        return response.json()["id"]

    def wait_for(self, job_id: str, state: str) -> dict[str, Any]:
        def find() -> dict[str, Any] | None:
            job = self.admin.get(f"/v1/jobs/{job_id}").json()
            return job if job["state"] == state else None

        return wait_until(find)

    def is_leader(self, process: ServiceProcess) -> bool:
        with self.database.read() as session:
            owner = session.execute(text("SELECT owner FROM leadership")).scalar_one()
        return owner.split(":")[-2] == str(process.pid)

    def read_time(self) -> datetime:
        with self.database.read() as session:
            return self.database.read_time(session)


@pytest.fixture
def pair(database_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with lend_database(database_kind, tmp_path / "state", request) as url:
        settings = make_settings(tmp_path, url).model_copy(
            update={"trainer_python": write_trainer(tmp_path / "trainer"), "reconcile_interval_seconds": 0.3}
        )
        module, environment = "tests.service.leader.quick_service", make_environment(settings)
        first = ServiceProcess(tmp_path / "first", environment, module=module)
        second = ServiceProcess(tmp_path / "second", environment, CLOCK_OFFSET_SECONDS, module=module)
        database = Database(url)
        try:
            first.start()
            first.wait_until_ready()
            with make_client(second.url, first.admin_key) as admin:
                pair = Pair(first, second, admin, database, settings.runs_directory)
                wait_until(lambda: pair.is_leader(first))
                second.start()
                second.wait_until_ready()
                yield pair
        finally:
            first.kill()
            second.kill()
            kill_all(find_workers(settings.runs_directory))
            database.close()


def test_another_process_leads_in_place_of_one_that_is_stopped_and_no_job_runs_twice(pair: Pair) -> None:
    running = pair.submit("wait")
    pair.wait_for(running, "RUNNING")
    ids = [running, *(pair.submit("train") for _ in range(8))]
    pair.first.pause()
    wait_until(lambda: pair.is_leader(pair.second))
    assert "stopped_leader_ended" in pair.second.log
    ids.append(pair.submit("train"))
    for job_id in ids[1:4]:
        pair.wait_for(job_id, "SUCCEEDED")
    pair.first.unpause()
    # It notices first that its connection has ended, or that its control loop has made no progress.
    wait_until(lambda: "leader_lock_lost" in pair.first.log or "leader_lock_given_up" in pair.first.log)
    assert pair.admin.post(f"/v1/jobs/{running}/pause").status_code == 202
    pair.wait_for(running, "PAUSED")
    jobs = [pair.wait_for(job_id, "SUCCEEDED") for job_id in ids[1:]]
    assert [job["num_attempts"] for job in jobs] == [1] * len(jobs)
    assert [count_starts(pair.runs / job_id) for job_id in ids] == [1] * len(ids)
    assert not [line for job_id in ids for line in read_overlaps(pair.runs / job_id)]
    assert pair.is_leader(pair.second)
    answers = [httpx.get(f"{process.url}/readyz") for process in (pair.first, pair.second)]
    assert [(answer.status_code, answer.json()["leads"]) for answer in answers] == [(200, False), (200, True)]


def test_a_follower_writes_the_time_of_the_database(pair: Pair) -> None:
    created_at = datetime.fromisoformat(pair.admin.get(f"/v1/jobs/{pair.submit('train')}").json()["created_at"])
    assert abs((pair.read_time() - created_at).total_seconds()) < CLOCK_OFFSET_SECONDS / 2
