"""Reports of a job whose attempts start over: what stands, in pages and thinned, and what each attempt has said."""

from typing import Any

import pytest

from dlrm.record import EvaluationReport, Report, StartReport, StepReport
from service.client import Client
from service.client import client as client_module
from service.control.starter import Starter
from service.jobs.attempts import AttemptRepository
from service.jobs.models import Attempt, Job
from service.keys.roles import Role
from service.keys.secret import hash_secret

TOKEN = "attempt-token"


@pytest.fixture
def api(shared_api: Any) -> Any:
    """One service for all: every test has a job of its own."""
    return shared_api


def begun(api: Any, job_id: str) -> Attempt:
    """The next attempt of a job, whose reports are pushed with TOKEN; the one before it, if any, is over."""
    services = api.services
    job = _job(api, job_id)
    if job.num_attempts:
        services.control.reconciler._ended.launch_failed(job_id, "a cable was loose")
        job = _job(api, job_id)
    made = Starter(services.database, services.launcher, services.settings.url).begin(job)
    with services.database.write() as session:
        AttemptRepository(session).set_token(made.id, hash_secret(TOKEN))
    return made


def _job(api: Any, job_id: str) -> Job:
    with api.services.database.read() as session:
        return session.get_one(Job, job_id)


def step(number: int) -> StepReport:
    return StepReport(
        step=number,
        num_steps=100,
        num_samples=64 * number,
        loss=1.0 / number,
        dense_learning_rate=0.1,
        table_learning_rate=0.01,
        samples_per_second=100.0,
    )


def evaluation(number: int) -> EvaluationReport:
    return EvaluationReport(
        step=number,
        num_rows=9,
        auc=0.5 + number / 1000,
        log_loss=0.5,
        normalized_entropy=0.9,
        calibration=1.0,
        constant_log_loss=0.6,
        seconds=0.1,
    )


def push(api: Any, attempt: Attempt, *reports: Report) -> Any:
    lines = [
        report.model_copy(update={"seq": seq, "time": 1e9 * attempt.number + seq}).model_dump_json()
        for seq, report in enumerate(reports, start=1)
    ]
    body = {"rank": 0, "stream": "metrics", "first_seq": 1, "lines": lines}
    return api.anonymous.post(f"/v1/ingest/{attempt.id}", json=body, headers={"Authorization": f"Bearer {TOKEN}"})


def restarted(api: Any) -> str:
    """A job of three attempts: to step 60, from 40 to 45 with nothing saved, from 40 to 100; evaluated every 20 steps.

    The checkpoint of step 40 was written before the evaluation that was due there.
    """
    job_id = api.submit()["id"]
    first = [report for at in range(1, 61) for report in ([step(at), evaluation(at)] if at % 20 == 0 else [step(at)])]
    push(api, begun(api, job_id), StartReport(step=0, evaluated_step=0), *first)
    begin_again = StartReport(step=40, evaluated_step=20)
    push(api, begun(api, job_id), begin_again, evaluation(40), *[step(at) for at in range(41, 46)])
    rest = [report for at in range(41, 101) for report in ([step(at), evaluation(at)] if at % 20 == 0 else [step(at)])]
    push(api, begun(api, job_id), begin_again, evaluation(40), *rest)
    return job_id


def metrics(api: Any, job_id: str, **query: Any) -> dict[str, Any]:
    return api.viewer.get(f"/v1/jobs/{job_id}/metrics", params=query).json()


def steps(page: dict[str, Any]) -> list[int]:
    return [item["step"] for item in page["items"]]


def test_what_later_attempts_made_again_is_left_out_of_the_whole(api: Any) -> None:
    job_id = restarted(api)
    assert steps(metrics(api, job_id, kind="step")) == list(range(1, 101))
    evaluations = metrics(api, job_id, kind="evaluation")["items"]
    assert [(item["step"], item["attempt"]) for item in evaluations] == [(20, 1), (40, 3), (60, 3), (80, 3), (100, 3)]
    by_attempt = [item["attempt"] for item in metrics(api, job_id, kind="step")["items"]]
    assert by_attempt == [1] * 40 + [3] * 60


def test_pages_hold_what_stands_and_no_more(api: Any) -> None:
    job_id = restarted(api)
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        page = metrics(api, job_id, limit=7, **({"cursor": cursor} if cursor else {}))
        assert len(page["items"]) == 7 or page["next_cursor"] is None
        seen += [(item["kind"], item["step"]) for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 105


def test_thinning_spreads_over_what_stands(api: Any) -> None:
    page = metrics(api, restarted(api), kind="step", max_points=10)
    assert steps(page) == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


def test_one_attempt_shows_all_it_has_said(api: Any) -> None:
    job_id = restarted(api)
    assert steps(metrics(api, job_id, attempt=1, kind="step")) == list(range(1, 61))
    assert steps(metrics(api, job_id, attempt=2)) == [40, *range(41, 46)]
    assert steps(metrics(api, job_id, attempt=1, kind="step", max_points=3)) == [20, 40, 60]


def test_where_attempts_began_stands_beside_the_reports_and_the_attempts(api: Any) -> None:
    job_id = restarted(api)
    begin_again = {"step": 40, "evaluated_step": 20}
    expected = [
        {"attempt": 1, "step": 0, "evaluated_step": 0},
        {"attempt": 2, **begin_again},
        {"attempt": 3, **begin_again},
    ]
    assert metrics(api, job_id, limit=1)["starts"] == expected
    attempts = api.viewer.get(f"/v1/jobs/{job_id}/attempts").json()["items"]
    assert [attempt["start_step"] for attempt in attempts] == [0, 40, 40]


def test_an_attempt_that_has_said_nothing_yet_makes_nothing_void(api: Any) -> None:
    job_id = api.submit()["id"]
    push(api, begun(api, job_id), StartReport(step=0, evaluated_step=0), step(1), step(2))
    begun(api, job_id)
    assert steps(metrics(api, job_id)) == [1, 2]
    progress = api.viewer.get(f"/v1/jobs/{job_id}").json()["progress"]
    assert (progress["step"], progress["num_steps"], progress["loss"]) == (2, 100, 0.5)
    assert (progress["phase"], progress["samples_per_second"], progress["eta_seconds"]) == (None, None, None)


def test_a_start_brings_progress_back_to_the_last_reports_that_stand(api: Any) -> None:
    job_id = api.submit()["id"]
    first = [StartReport(step=0, evaluated_step=0), *map(step, range(1, 5)), evaluation(4), *map(step, range(5, 9))]
    push(api, begun(api, job_id), *first, evaluation(8))
    push(api, begun(api, job_id), StartReport(step=5, evaluated_step=4))
    progress = api.viewer.get(f"/v1/jobs/{job_id}").json()["progress"]
    shown = {name: progress[name] for name in ("step", "num_steps", "done_fraction", "loss", "auc")}
    assert shown == {"step": 5, "num_steps": 100, "done_fraction": 0.05, "loss": 0.2, "auc": 0.504}


def test_a_start_from_the_beginning_leaves_nothing_of_earlier_attempts(api: Any) -> None:
    job_id = api.submit()["id"]
    push(api, begun(api, job_id), StartReport(step=0, evaluated_step=0), step(1), evaluation(1))
    push(api, begun(api, job_id), StartReport(step=0, evaluated_step=0))
    assert metrics(api, job_id)["items"] == []
    progress = api.viewer.get(f"/v1/jobs/{job_id}").json()["progress"]
    assert (progress["step"], progress["loss"], progress["auc"]) == (0, None, None)


@pytest.mark.parametrize(
    "report",
    [StartReport(step=-1, evaluated_step=0), StartReport(step=0, evaluated_step=2**63), step(2**63), evaluation(-1)],
)
def test_a_step_that_is_no_number_of_batches_is_refused(api: Any, report: Report) -> None:
    attempt = begun(api, api.submit()["id"])
    response = push(api, attempt, report)
    assert response.status_code == 422
    assert "step: is no number of batches" in response.text


def test_a_client_sees_every_step_once_though_an_attempt_begins_between_two_pages(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "METRICS_PER_PAGE", 4)
    job_id = api.submit()["id"]
    push(api, begun(api, job_id), StartReport(step=0, evaluated_step=0), *map(step, range(1, 7)), evaluation(6))
    secret = api.services.keys.create("reader", Role.VIEWER).key
    with Client(api.url, secret) as client:
        ask, num_asked = client._transport.get, 0

        def ask_and_begin_again(*arguments: Any) -> bytes:
            nonlocal num_asked
            answer = ask(*arguments)
            num_asked += 1
            if num_asked == 1:
                push(api, begun(api, job_id), StartReport(step=3, evaluated_step=0), *map(step, range(4, 9)))
            return answer

        monkeypatch.setattr(client._transport, "get", ask_and_begin_again)
        assert [metric.step for metric in client.metrics(job_id)] == list(range(1, 9))
        assert num_asked > 1
        assert [metric.step for metric in client.metrics(job_id, attempt=1)] == [*range(1, 7), 6]
