"""Curves whose reports are so long that an answer holds only some of them."""

from typing import Any

import pytest

from service.reports import curves, pages
from tests.made_reports import make_evaluation, make_step
from tests.service.api import Api
from tests.service.databases import on_both_databases
from tests.service.reports.attempts import begin_next_attempt, push_reports

pytestmark = on_both_databases

NUM_STEPS = 60
MAX_CHARACTERS = 100_000
"""Limit of an answer in these tests; a report has about a tenth of it."""


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", MAX_CHARACTERS)
    monkeypatch.setattr(curves, "MAX_PAGE_BYTES", MAX_CHARACTERS)


def submit_job_with_long_reports(api: Api) -> str:
    job_id = api.submit()["id"]
    gsnr = {f"layer-{number:05}": 0.1 for number in range(600)}
    steps = (make_step(number, gsnr=gsnr) for number in range(1, NUM_STEPS + 1))
    assert push_reports(api, begin_next_attempt(api, job_id), *steps).status_code == 200
    return job_id


def read(api: Api, job_id: str, **query: Any) -> tuple[list[int], str | None, int]:
    """Return the steps of an answer, the cursor of the next page and the length of the answer."""
    response = api.viewer.get(f"/v1/jobs/{job_id}/metrics", params=query)
    page = response.json()
    return [item["step"] for item in page["items"]], page["next_cursor"], len(response.text)


def test_a_page_ends_before_it_is_too_long_and_the_next_one_goes_on(api: Api) -> None:
    job_id = submit_job_with_long_reports(api)
    steps, cursor, length = read(api, job_id)
    num_pages = 1
    assert length < 1.3 * MAX_CHARACTERS
    while cursor is not None:
        more, cursor, length = read(api, job_id, cursor=cursor)
        assert more
        assert length < 1.3 * MAX_CHARACTERS
        steps += more
        num_pages += 1
    assert steps == list(range(1, NUM_STEPS + 1))
    assert num_pages > 3


def test_a_curve_of_many_layers_has_fewer_points_and_the_last_one(api: Api) -> None:
    job_id = submit_job_with_long_reports(api)
    response = api.viewer.get(f"/v1/jobs/{job_id}/curves", params={"names": "gsnr", "resolution": 30})
    training = response.json()["training"]
    assert len(response.text) < 1.1 * MAX_CHARACTERS
    assert training["steps_per_point"] > 2
    assert 3 < len(training["steps"]) < 30
    assert training["steps"][-1] == NUM_STEPS
    assert len(training["curves"]) == 600


def test_curves_of_many_tasks_have_fewer_points_and_the_last_one(api: Api) -> None:
    attempt = begin_next_attempt(api, api.submit()["id"])
    tasks = {f"task-{number:05}.auc": 0.75 for number in range(600)}
    # The last one is short: all of them limit an answer.
    evaluations = (make_evaluation(n, tasks=tasks if n < NUM_STEPS else None) for n in range(1, NUM_STEPS + 1))
    assert push_reports(api, attempt, *evaluations).status_code == 200
    response = api.viewer.get(f"/v1/jobs/{attempt.job_id}/curves", params={"names": "tasks", "resolution": 30})
    evaluation = response.json()["evaluation"]
    assert len(response.text) < 1.1 * MAX_CHARACTERS
    assert 3 < len(evaluation["steps"]) < 30
    assert evaluation["steps"][-1] == NUM_STEPS
    assert len(evaluation["curves"]) == 600


def test_a_report_beyond_the_limit_is_answered_alone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 10)
    job_id = submit_job_with_long_reports(api)
    steps, cursor, _ = read(api, job_id)
    assert (steps, cursor is None) == ([1], False)
    assert read(api, job_id, cursor=cursor)[0] == [2]
