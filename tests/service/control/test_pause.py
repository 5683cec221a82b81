"""Pausing and resuming, with real processes."""

from pathlib import Path
from typing import Any

import httpx

from service.store.job_repository import JobRepository
from tests.patience import wait_until
from tests.service.api import Api


def post(api: Api, job_id: str, action: str) -> httpx.Response:
    return api.submitter.post(f"/v1/jobs/{job_id}/{action}")


def list_attempts(api: Api, job_id: str) -> list[dict[str, Any]]:
    return api.viewer.get(f"/v1/jobs/{job_id}/attempts").json()["items"]


def run_job(api: Api, **changes: Any) -> str:
    """Submit a job, wait until it has reported its start and a step, and return its id."""
    job = api.wait_for(api.submit(**changes)["id"], "RUNNING")
    wait_until(Path(job["run_directory"], f"attempt-{job['num_attempts']}/spool/rank-0.metrics.jsonl").exists)
    return job["id"]


def pause_job(api: Api, job_id: str) -> dict[str, Any]:
    """Pause a job, and return it once it is paused."""
    response = post(api, job_id, "pause")
    assert (response.status_code, response.json()["state"]) == (202, "PAUSING")
    return api.wait_for(job_id, "PAUSED")


def test_a_paused_job_has_a_checkpoint_holds_nothing_and_goes_on_from_it(live_api: Api) -> None:
    job_id = run_job(live_api, max_restarts=0)
    job = pause_job(live_api, job_id)
    assert (job["reason"], job["restarts_at"]) == ("user_paused", None)
    assert job["message"] == "paused by team (key submitter)"
    capacity = live_api.viewer.get("/v1/capacity").json()
    assert capacity["num_cores_free"] == capacity["num_cores"]
    assert [item["step"] for item in live_api.viewer.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"]] == [1]
    with live_api.services.database.write() as session:
        JobRepository(session).get_document(job_id).metrics = {"auc": 0.7}
    response = post(live_api, job_id, "resume")
    assert (response.status_code, response.json()["state"], response.json()["reason"]) == (202, "QUEUED", "resumed")
    wait_until(lambda: live_api.wait_for(job_id, "RUNNING")["progress"]["step"] == 2)
    # Those of the first attempt no longer hold.
    assert live_api.wait_for(job_id, "RUNNING")["metrics"] == {}
    pause_job(live_api, job_id)
    first, second = list_attempts(live_api, job_id)
    assert (first["state"], first["reason"], first["saved_step"]) == ("STOPPED", "user_paused", 1)
    assert (second["state"], second["start_step"], second["saved_step"]) == ("STOPPED", 1, 2)
    states = [event["to_state"] for event in live_api.viewer.get(f"/v1/jobs/{job_id}/events").json()["items"]]
    ran = ["QUEUED", "STARTING", "RUNNING", "PAUSING", "PAUSED"]
    assert states == ran * 2


def test_a_paused_job_is_cancelled_at_once_and_pausing_twice_is_harmless(live_api: Api) -> None:
    job_id = run_job(live_api)
    pause_job(live_api, job_id)
    assert post(live_api, job_id, "pause").json()["state"] == "PAUSED"
    cancelled = post(live_api, job_id, "cancel").json()
    assert (cancelled["state"], cancelled["reason"]) == ("CANCELLED", "user_cancelled")


def test_a_job_may_be_cancelled_while_it_pauses(live_api: Api) -> None:
    job_id = run_job(live_api)
    post(live_api, job_id, "pause")
    post(live_api, job_id, "cancel")
    job = live_api.wait_for(job_id, "CANCELLED", "PAUSED")
    assert (job["state"], job["message"]) == ("CANCELLED", "cancelled by team (key submitter)")


def test_only_what_runs_is_paused_and_only_what_is_paused_resumed(api: Api) -> None:
    job_id = api.submit()["id"]
    for action, state in (("pause", "RUNNING"), ("resume", "PAUSED")):
        refused = post(api, job_id, action)
        assert (refused.status_code, refused.json()["state"]) == (409, "QUEUED")
        assert f"only a {state} job" in refused.json()["detail"]
        assert api.viewer.post(f"/v1/jobs/{job_id}/{action}").status_code == 403
        assert post(api, "job_nowhere", action).status_code == 404
