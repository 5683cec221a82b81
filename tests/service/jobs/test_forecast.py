"""The forecast of a job's log-loss, as its page and `dlrm show` have it."""

from typing import Any

import pytest

from service.store.models import Job
from service.store.states import JobState
from tests.made_reports import make_evaluation, make_step
from tests.service.api import Api
from tests.service.reports.attempts import begin_next_attempt, push_reports


def train(api: Api, decay: str, **batch: Any) -> dict[str, Any]:
    """Let a job make 60 of 100 steps, with an evaluation after every ten: E = 0.2 / step^(1/2) + 0.4."""
    optimizer = {"schedule": {"decay": decay}}
    job = api.submit(batch={"global_size": 64, **batch}, dense_optimizer=optimizer)
    attempt = begin_next_attempt(api, job["id"])
    reports = [make_evaluation(step, log_loss=0.2 * step**-0.5 + 0.4) for step in range(10, 70, 10)]
    with api.services.database.write() as session:
        session.get_one(Job, job["id"]).state = JobState.RUNNING
    assert push_reports(api, attempt, *reports, make_step(60)).status_code == 200
    return api.viewer.get(f"/v1/jobs/{job['id']}").json()


def test_a_job_that_trains_has_a_forecast_that_says_where_it_is_poor(api: Api) -> None:
    forecast = train(api, "constant")["forecast"]
    assert forecast["log_loss"] == pytest.approx(0.42, abs=1e-4)
    assert forecast["low"] <= forecast["log_loss"] <= forecast["high"]
    assert "poor" not in forecast["message"]
    assert 'poor, since decay "wsd" lets the rate fall' in train(api, "wsd")["forecast"]["message"]
    assert train(api, "constant", schedule=[{"until_fraction": 0.5, "global_size": 32}])["forecast"] is None
