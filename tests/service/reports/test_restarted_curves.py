"""Reports of a job whose attempts start over: those that are not void, and those of each attempt."""

from typing import Any

import pytest

from dlrm.record import Report, StartReport
from service.access.principal import Role
from service.client import Client, results
from service.reports import rollups
from tests.made_reports import make_evaluation, make_step
from tests.service.api import TEAM, Api
from tests.service.databases import on_both_databases
from tests.service.reports.attempts import begin_next_attempt, push_reports

pytestmark = on_both_databases

START = StartReport(step=0, evaluated_step=0)
"""Report of an attempt that begins at step 0."""


def make_reports(start: int, end: int) -> list[Report]:
    """Make the reports of steps [start, end), with an evaluation every 20 steps."""
    reports: list[Report] = []
    for number in range(start, end):
        reports.append(make_step(number))
        if number % 20 == 0:
            reports.append(make_evaluation(number))
    return reports


def submit_restarted_job(api: Api) -> str:
    """Submit a job, push the reports of three attempts, and return its id.

    The attempts train to step 60, from 40 to 45 without a checkpoint, and from 40 to 100. They evaluate every 20 steps.
    The checkpoint of step 40 was written before the evaluation that was due there.
    """
    job_id = api.submit()["id"]
    push_reports(api, begin_next_attempt(api, job_id), START, *make_reports(1, 61))
    restart = StartReport(step=40, evaluated_step=20)
    push_reports(api, begin_next_attempt(api, job_id), restart, make_evaluation(40), *make_reports(41, 46))
    push_reports(api, begin_next_attempt(api, job_id), restart, make_evaluation(40), *make_reports(41, 101))
    return job_id


def get_metrics(api: Api, job_id: str, **query: Any) -> dict[str, Any]:
    return api.viewer.get(f"/v1/jobs/{job_id}/metrics", params=query).json()


def list_steps(page: dict[str, Any]) -> list[int]:
    return [item["step"] for item in page["items"]]


def test_what_later_attempts_made_again_is_left_out_of_the_whole(api: Api) -> None:
    job_id = submit_restarted_job(api)
    assert list_steps(get_metrics(api, job_id, kind="step")) == list(range(1, 101))
    evaluations = get_metrics(api, job_id, kind="evaluation")["items"]
    assert [(item["step"], item["attempt"]) for item in evaluations] == [(20, 1), (40, 3), (60, 3), (80, 3), (100, 3)]
    by_attempt = [item["attempt"] for item in get_metrics(api, job_id, kind="step")["items"]]
    assert by_attempt == [1] * 40 + [3] * 60


def test_pages_hold_what_stands_and_no_more(api: Api) -> None:
    job_id = submit_restarted_job(api)
    reported: list[tuple[str, int]] = []
    cursor = None
    while True:
        page = get_metrics(api, job_id, limit=7, **({"cursor": cursor} if cursor else {}))
        assert len(page["items"]) == 7 or page["next_cursor"] is None
        reported += [(item["kind"], item["step"]) for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(reported) == len(set(reported)) == 105


def get_curves(api: Api, job_id: str, **query: Any) -> dict[str, Any]:
    return api.viewer.get(f"/v1/jobs/{job_id}/curves", params=query).json()


@pytest.mark.parametrize("resolution", [200, 40, 7, 3, 1])
def test_a_curve_of_any_resolution_has_no_void_step(api: Api, resolution: int) -> None:
    job_id = submit_restarted_job(api)
    curves = get_curves(api, job_id, names="num_samples,loss,auc", resolution=resolution)
    training, width = curves["training"], curves["training"]["steps_per_point"]
    ends = {*range(width, 101, width), 40, 100}
    assert training["steps"] == sorted(ends)
    assert training["curves"]["num_samples"]["last"] == [64 * step for step in training["steps"]]
    assert training["curves"]["loss"].get("max", training["curves"]["loss"]["last"])[0] == 1.0
    assert curves["starts"] == get_metrics(api, job_id)["starts"]
    evaluation = curves["evaluation"]
    assert evaluation["steps"][-1] == 100
    if resolution >= 5:
        assert evaluation["curves"]["auc"]["last"] == [0.52, 0.54, 0.56, 0.58, 0.6]


def test_one_attempt_shows_all_it_has_said(api: Api) -> None:
    job_id = submit_restarted_job(api)
    assert list_steps(get_metrics(api, job_id, attempt=1, kind="step")) == list(range(1, 61))
    assert list_steps(get_metrics(api, job_id, attempt=2)) == [40, *range(41, 46)]
    training = get_curves(api, job_id, attempt=1, names="num_samples", resolution=4)["training"]
    assert (training["steps_per_point"], training["steps"]) == (16, [16, 32, 48, 60])


def test_where_attempts_began_stands_beside_the_reports_and_the_attempts(api: Api) -> None:
    job_id = submit_restarted_job(api)
    restart = {"step": 40, "evaluated_step": 20}
    expected = [
        {"attempt": 1, "step": 0, "evaluated_step": 0},
        {"attempt": 2, **restart},
        {"attempt": 3, **restart},
    ]
    assert get_metrics(api, job_id, limit=1)["starts"] == expected
    attempts = api.viewer.get(f"/v1/jobs/{job_id}/attempts").json()["items"]
    assert [attempt["start_step"] for attempt in attempts] == [0, 40, 40]


def test_an_attempt_that_has_said_nothing_yet_makes_nothing_void(api: Api) -> None:
    job_id = api.submit()["id"]
    push_reports(api, begin_next_attempt(api, job_id), START, make_step(1), make_step(2))
    begin_next_attempt(api, job_id)
    assert list_steps(get_metrics(api, job_id)) == [1, 2]
    progress = api.viewer.get(f"/v1/jobs/{job_id}").json()["progress"]
    assert (progress["step"], progress["num_steps"], progress["loss"]) == (2, 100, 0.5)
    assert (progress["phase"], progress["samples_per_second"], progress["eta_seconds"]) == (None, None, None)


def test_a_start_brings_progress_back_to_the_last_reports_that_stand(api: Api) -> None:
    job_id = api.submit()["id"]
    first, second = map(make_step, range(1, 5)), map(make_step, range(5, 9))
    push_reports(api, begin_next_attempt(api, job_id), START, *first, make_evaluation(4), *second, make_evaluation(8))
    push_reports(api, begin_next_attempt(api, job_id), StartReport(step=5, evaluated_step=4))
    progress = api.viewer.get(f"/v1/jobs/{job_id}").json()["progress"]
    shown = {name: progress[name] for name in ("step", "num_steps", "done_fraction", "loss", "auc")}
    assert shown == {"step": 5, "num_steps": 100, "done_fraction": 0.05, "loss": 0.2, "auc": 0.504}


def test_a_start_from_the_beginning_leaves_nothing_of_earlier_attempts(api: Api) -> None:
    job_id = api.submit()["id"]
    push_reports(api, begin_next_attempt(api, job_id), START, make_step(1), make_evaluation(1))
    push_reports(api, begin_next_attempt(api, job_id), START)
    assert get_metrics(api, job_id)["items"] == []
    progress = api.viewer.get(f"/v1/jobs/{job_id}").json()["progress"]
    assert (progress["step"], progress["loss"], progress["auc"]) == (0, None, None)


@pytest.mark.parametrize(
    "report",
    [
        START.model_copy(update={"step": -1}),
        START.model_copy(update={"evaluated_step": 2**63}),
        make_step(1).model_copy(update={"step": 2**63}),
        make_evaluation(1).model_copy(update={"step": -1}),
    ],
)
def test_a_step_that_is_no_number_of_batches_is_refused(api: Api, report: Report) -> None:
    attempt = begin_next_attempt(api, api.submit()["id"])
    response = push_reports(api, attempt, report)
    assert response.status_code == 422
    assert "step: Input should be" in response.text


def test_a_client_sees_every_step_once_though_an_attempt_begins_between_two_pages(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "METRICS_PER_PAGE", 4)
    job_id = api.submit()["id"]
    push_reports(api, begin_next_attempt(api, job_id), START, *map(make_step, range(1, 7)), make_evaluation(6))
    secret = api.services.keys.create("reader", Role.VIEWER, owner=TEAM).key
    with Client(api.url, secret) as client:
        get, num_requests = client._transport.get, 0

        async def get_and_begin_attempt(*arguments: Any) -> Any:
            nonlocal num_requests
            answer = await get(*arguments)
            num_requests += 1
            if num_requests == 1:
                restart = StartReport(step=3, evaluated_step=0)
                push_reports(api, begin_next_attempt(api, job_id), restart, *map(make_step, range(4, 9)))
            return answer

        monkeypatch.setattr(client._transport, "get", get_and_begin_attempt)
        assert [metric.step for metric in client.metrics(job_id)] == list(range(1, 9))
        assert num_requests > 1
        assert [metric.step for metric in client.metrics(job_id, attempt=1)] == [*range(1, 7), 6]


@pytest.mark.parametrize("start", [2, 18, 258, 274])
def test_a_start_between_two_reports_divides_buckets_whose_reports_all_become_void(
    api: Api, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    monkeypatch.setattr(rollups, "MIN_BUCKETS", 1)
    job_id = api.submit()["id"]
    known = {step: float(step) for step in range(10, 301, 10)}
    push_reports(
        api, begin_next_attempt(api, job_id), START, *(make_step(step, loss=loss) for step, loss in known.items())
    )
    restart = StartReport(step=start, evaluated_step=0)
    assert push_reports(api, begin_next_attempt(api, job_id), restart).status_code == 200
    for resolution, width in ((20, 16), (10, 32), (1, 512)):
        training = get_curves(api, job_id, attempt=1, names="loss", resolution=resolution)["training"]
        points: dict[int, list[float]] = {}
        for step, loss in known.items():
            points.setdefault((step - 1) // width, []).append(loss)
        losses = training["curves"]["loss"]
        assert training["steps_per_point"] == width
        assert losses["last"] == training["steps"] == [point[-1] for point in points.values()]
        assert losses["mean"] == pytest.approx([sum(point) / len(point) for point in points.values()])
        assert losses["min"] == [point[0] for point in points.values()]
        valid = get_curves(api, job_id, names="loss", resolution=resolution)["training"]["steps"]
        assert (valid[-1] if valid else 0) == start // 10 * 10
