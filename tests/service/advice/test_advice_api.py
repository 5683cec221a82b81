"""`GET /v1/jobs/{id}/advice`: what jobs that wait, run and have ended are advised, and who may ask."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from dlrm.config import JobSpec, parse_job
from dlrm.gradient_stats.batch_advice import advise
from dlrm.gradient_stats.noise import NoiseInterval
from dlrm.record import BATCH_ADVICE
from service.access.principal import Role
from service.client import Client
from service.store.events import add_event
from service.store.models import Event, Job, JobDocument
from tests.made_reports import make_evaluation
from tests.patience import wait_until
from tests.service.api import Api
from tests.service.databases import on_both_databases
from tests.service.jobs.keys import make_key
from tests.service.jobs.test_jobs_api import check_problem
from tests.service.reports.attempts import begin_next_attempt, push_reports


def ask(api: Api, job_id: str) -> dict[str, Any]:
    response = api.viewer.get(f"/v1/jobs/{job_id}/advice")
    assert response.status_code == 200, response.text
    return response.json()


def set_job(api: Api, job_id: str, metrics: dict[str, Any] | None = None, **values: Any) -> None:
    """Set columns of a job, and the metrics of its outcome."""
    with api.services.database.write() as session:
        session.execute(update(Job).where(Job.id == job_id).values(values))
        if metrics is not None:
            session.execute(update(JobDocument).where(JobDocument.job_id == job_id).values(metrics=metrics))


def add_report(api: Api, job_id: str, name: str, message: str = "", **details: Any) -> None:
    """Add an event as a rank reports it."""
    event = Event(
        job_id=job_id,
        attempt=1,
        time=datetime.now(UTC),
        actor="trainer",
        kind="report",
        name=name,
        rank=0,
        message=message,
        details=details,
    )
    with api.services.database.write() as session:
        add_event(session, event)


def change(document: dict[str, Any], advised: list[dict[str, Any]]) -> JobSpec:
    """Parse a document with advised changes."""
    for own in advised:
        section, (*names, last) = document, own["field"].split(".")
        for name in names:
            section = section.setdefault(name, {})
        section[last] = own["value"]
    return parse_job(document)


@on_both_databases
def test_a_job_that_waits_for_cores_is_told_with_how_many_it_would_start_now(api: Api) -> None:
    running = api.submit(resources={"workers_per_node": 3, "memory": "1GiB"}, batch={"global_size": 66})["id"]
    set_job(api, running, state="RUNNING", progress={"eta_seconds": 3000.0})
    waiting = api.submit(resources={"workers_per_node": 2, "memory": "1GiB"})
    answer = ask(api, waiting["id"])
    [item] = answer["items"]
    assert item["name"] == "would_start_now"
    assert (
        "needs 2 cores, 1 free. With workers_per_node 1 instead of 2 it would start now, not at about"
        in item["message"]
    )
    assert item["changes"] == [
        {"field": "resources.workers_per_node", "value": 1, "toml": "resources.workers_per_node = 1"}
    ]
    # There was no run of this name that would tell how much longer half of the cores take.
    assert (item["gain"], item["certainty"], answer["note"]) == (None, "low", None)
    # As the scheduler finds it.
    changed = change(waiting["spec"], item["changes"])
    started = api.submit(**changed.model_dump(mode="json", exclude={"labels"}))
    assert api.services.leadership.acquire()
    api.services.control.scheduler.run_once()
    assert api.viewer.get(f"/v1/jobs/{started['id']}").json()["state"] != "QUEUED"
    assert api.viewer.get(f"/v1/jobs/{waiting['id']}").json()["state"] == "QUEUED"


def test_a_job_that_no_smaller_number_would_start_is_told_why_there_is_no_advice(api: Api) -> None:
    whole = {"workers_per_node": 1, "threads_per_worker": 4, "memory": "1GiB"}
    running = api.submit(resources=whole)["id"]
    set_job(api, running, state="RUNNING")
    waiting = api.submit(resources=whole)["id"]
    answer = ask(api, waiting)
    assert answer["items"] == []
    assert answer["note"] == (
        "It waits: needs 4 cores, 0 free. With fewer workers, threads or machines it would not start now either. "
        "It is first in the queue, so that a higher priority would not help. All the room is held by the job "
        f"{api.viewer.get(f'/v1/jobs/{running}').json()['name']} ({running}): if that one ends, pauses or is "
        "cancelled, this one starts."
    )
    behind = api.submit(resources=whole)["id"]
    assert ask(api, behind)["note"].endswith("1 job stands before it in the queue: a higher priority passes them.")
    assert ask(api, running)["note"] == "Too few steps are measured yet: 0 of 10."


@on_both_databases
def test_a_running_job_whose_evaluations_get_worse_is_advised_to_end(api: Api) -> None:
    job_id = api.submit(run={"epochs": 2.0, "patience": False})["id"]
    losses = {100: 0.5, 200: 0.48, 300: 0.49, 400: 0.5}
    evaluations = [make_evaluation(step, log_loss=log_loss) for step, log_loss in losses.items()]
    assert push_reports(api, begin_next_attempt(api, job_id), *evaluations).status_code == 200
    set_job(api, job_id, state="RUNNING", progress={"step": 400, "num_steps": 500, "num_run_samples": 10_000})
    [item] = ask(api, job_id)["items"]
    assert item["name"] == "got_worse"
    assert "best after step 200" in item["message"]
    assert item["message"].endswith(
        "cancel it and train for 0.8 instead of 2 epochs, or set run.patience, which ends such a run."
    )


def test_a_job_beyond_its_owners_quota_is_told_what_fits_it(api: Api) -> None:
    assert api.admin.put("/v1/quotas/*", json={"num_cores": 3}).status_code == 200
    running = api.submit()["id"]
    set_job(api, running, state="RUNNING")
    waiting = api.submit(resources={"workers_per_node": 3, "memory": "1GiB"}, batch={"global_size": 66})["id"]
    [item] = ask(api, waiting)["items"]
    assert item["changes"][0]["value"] == 2
    assert "occupies 1 of 3" in item["message"]


@on_both_databases
def test_an_ended_job_has_advice_from_its_events_and_metrics_and_the_last_one_of_a_name_counts(api: Api) -> None:
    job = api.submit(batch={"global_size": 16_384})
    metrics = {"num_samples": 1_000_000.0, "samples_per_second": 1000.0}
    set_job(api, job["id"], metrics, state="SUCCEEDED", progress={"num_steps": 62, "num_run_samples": 1_000_000})
    unknown = advise({16_384: 1}, None).model_dump()
    add_report(api, job["id"], BATCH_ADVICE, "no advice on the batch: too few measurements", **unknown)
    assert ask(api, job["id"])["note"].endswith("no advice on the batch: too few measurements.")
    add_report(api, job["id"], BATCH_ADVICE, **advise({16_384: 1}, NoiseInterval(900.0, 1024.0, 1200.0)).model_dump())
    add_report(api, job["id"], "plan", tables="as another trainer writes it")
    [item] = ask(api, job["id"])["items"]
    # 1 + 16 times the fewest samples, and 2 at the noise scale.
    assert item["name"] == "batch_above_noise"
    assert item["gain"]["value"] == pytest.approx(1_000_000 * (1 - 2 / 17))
    advised = change(job["spec"], item["changes"])
    assert advised.batch.global_size == 1024
    assert isinstance(advised.run.epochs, float)
    # Until the run has decided, one epoch is assumed.
    assert advised.run.epochs == pytest.approx(2 / 17, rel=0.01)


@on_both_databases
@pytest.mark.parametrize("deadline_from", ["start", "submission"])
def test_a_wait_counts_against_a_deadline_only_if_the_deadline_counts_it(api: Api, deadline_from: str) -> None:
    job_id = api.submit(deadline_seconds=600, deadline_from=deadline_from)["id"]
    # 300 s in the queue, 100 s of training, and 350 s of it are left: 450 s from the start, 750 s from the submission.
    start = datetime.now(UTC) - timedelta(seconds=100)
    counted_from = start if deadline_from == "start" else start - timedelta(seconds=300)
    progress = {"step": 100, "trained_fraction": 0.22, "eta_seconds": 350.0}
    set_job(
        api,
        job_id,
        state="RUNNING",
        progress=progress,
        started_at=start,
        deadline_at=counted_from + timedelta(seconds=600),
    )
    names = [item["name"] for item in ask(api, job_id)["items"]]
    assert names == ([] if deadline_from == "start" else ["deadline_too_early"])
    ended = {"state": "FAILED", "reason": "deadline_exceeded", "finished_at": counted_from + timedelta(seconds=600)}
    set_job(api, job_id, **ended)
    [item] = ask(api, job_id)["items"]
    # 600 s and the 350 s that were left, and a fifth.
    assert item["changes"][0]["value"] == 1140


def test_other_advice_stays_if_the_plans_of_a_job_cannot_be_compared(api: Api) -> None:
    sharding = {"transport": "network"}
    resources = {"workers_per_node": 2, "memory": "2GiB"}
    job_id = api.submit(precision="bf16", sharding=sharding, resources=resources)["id"]
    set_job(api, job_id, state="SUCCEEDED", progress={"step": 100})
    sizes = {"weight_bytes": [1, 1], "optimizer_bytes": [1, 1], "buffer_bytes": [1, 1], "memory_bytes": 2**31}
    exchange = {"ranks_per_memory": 2, "imbalance_of_seconds": 1.0, "exchange_bytes": {"forward": 8.0}, "tables": {}}
    add_report(api, job_id, "plan", **sizes, **exchange)
    add_report(api, job_id, "step_parts", num_steps=100, seconds={"lookup": 0.3, "dense": 0.1})
    add_report(api, job_id, "slow_precision")
    with api.services.database.write() as session:
        document = session.get_one(JobDocument, job_id)
        # As an older version may have stored it.
        document.resolved = {**document.resolved, "job": {**document.resolved["job"], "name": 1}}
    first = ask(api, job_id)
    assert (first["is_comparing"], first["note"]) == (True, None)
    # The second round begins another comparison.
    for _ in range(2):
        answer = wait_until(lambda: None if (answer := ask(api, job_id))["is_comparing"] else answer)
        assert [item["name"] for item in answer["items"]] == ["slow_precision"]


def test_advice_is_for_those_who_see_the_job_and_is_tagged(api: Api) -> None:
    job_id = api.submit()["id"]
    first = api.viewer.get(f"/v1/jobs/{job_id}/advice")
    again = api.viewer.get(f"/v1/jobs/{job_id}/advice", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    with make_key(api, "other", Role.SUBMITTER) as other:
        check_problem(other.get(f"/v1/jobs/{job_id}/advice"), 404, "not-found")
    assert api.anonymous.get(f"/v1/jobs/{job_id}/advice").status_code == 401


def test_the_cost_of_checkpoints_is_the_mean_of_the_last_attempts(api: Api) -> None:
    job_id = api.submit(run={"checkpoint_every_seconds": 10})["id"]
    set_job(api, job_id, state="RUNNING", progress={"step": 100})
    start = datetime.now(UTC)
    with api.services.database.write() as session:
        for number, stall in enumerate((50.0, 1.0, 2.0, 3.0)):
            # The first one is of an earlier attempt.
            event = Event(
                job_id=job_id,
                attempt=1 + (number > 0),
                time=start + timedelta(seconds=10 * number),
                actor="trainer",
                kind="report",
                name="checkpoint_saved",
                rank=0,
                message="",
                details={"stall_seconds": stall},
            )
            add_event(session, event)
    [item] = ask(api, job_id)["items"]
    assert "waits 2 s for each checkpoint, every 10 s: 20 % of the time" in item["message"]
    assert item["changes"][0]["value"] == 200.0


def test_the_client_reads_the_advice(api: Api) -> None:
    job_id = api.submit()["id"]
    with Client(api.url, api.viewer.headers["Authorization"].removeprefix("Bearer ")) as client:
        assert client.advice(job_id).model_dump(mode="json") == ask(api, job_id)
