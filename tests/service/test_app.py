"""The application as a whole: health, metrics, pages and OpenAPI document."""

import logging
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy.exc import OperationalError

from tests.patience import wait_until
from tests.service.api import Api


def test_health_needs_no_key_and_figures_the_key_of_a_viewer(live_api: Api) -> None:
    assert live_api.anonymous.get("/healthz").json() == {"status": "ok"}
    wait_until(lambda: live_api.anonymous.get("/readyz").json() == {"status": "ok", "leads": True})
    live_api.submit()
    assert live_api.anonymous.get("/metrics").status_code == 401
    metrics = live_api.viewer.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "dlrm_cores_free" in metrics.text
    assert "dlrm_leads 1.0" in metrics.text
    assert "dlrm_jobs{state=" in metrics.text
    assert 'route="/v1/jobs"' in metrics.text


def test_a_service_whose_loop_does_not_run_is_not_ready(api: Api) -> None:
    response = api.anonymous.get("/readyz")
    assert response.status_code == 503
    assert response.json()["type"] == "urn:dlrm:problem:not-ready"


def test_nobody_learns_from_readiness_where_the_database_is(
    live_api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise OperationalError("SELECT 1", {}, Exception('connection to server at "db.intern" (10.0.0.7) failed: gone'))

    wait_until(lambda: live_api.anonymous.get("/readyz").status_code == 200)
    logging.getLogger().addHandler(caplog.handler)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(live_api.services.readiness.database, "read", refuse)
        for client in (live_api.anonymous, live_api.admin):
            answers = [client.get("/readyz") for _ in range(2)]
            assert {answer.status_code for answer in answers} == {503}
            assert not any(word in answer.text for answer in answers for word in ("db.intern", "10.0.0.7", "gone"))
    causes = [str(record.msg) for record in caplog.records if "'not_ready'" in str(record.msg)]
    assert len(causes) == 1
    assert "gone" in causes[0]
    wait_until(lambda: live_api.anonymous.get("/readyz").status_code == 200)


def test_a_method_that_is_not_allowed_is_answered_with_all_that_are(api: Api) -> None:
    for path, allowed in (
        ("/v1/jobs", "GET, HEAD, POST"),
        ("/v1/jobs/job_0", "DELETE, GET, HEAD, PATCH"),
        ("/v1/keys", "GET, HEAD, POST"),
    ):
        response = api.admin.put(path, json={})
        assert response.status_code == 405
        assert response.headers["allow"] == allowed
        assert response.json()["detail"] == f"Method Not Allowed; allowed here: {allowed}"


def test_capacity_is_what_no_job_holds(live_api: Api) -> None:
    resources = {"workers_per_node": 1, "threads_per_worker": 3, "memory": "1GiB"}
    live_api.wait_for(live_api.submit(resources=resources)["id"], "RUNNING")
    answer = live_api.viewer.get("/v1/capacity").json()
    launcher, launchers = answer.pop("launcher"), answer.pop("launchers")
    assert (launcher, launchers) == ("local", {"local": answer})
    assert answer == {
        "num_cores": 4,
        "num_cores_free": 1,
        "memory_bytes": 4 * 2**30,
        "memory_bytes_free": 3 * 2**30,
        "num_gpus": 0,
        "num_gpus_free": 0,
    }


@pytest.mark.parametrize("path", ["/", "/jobs/job_0", "/signin"])
def test_pages_come_without_a_key(api: Api, path: str) -> None:
    response = api.anonymous.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("path", ["/nowhere", "/jobs/job_0/nowhere"])
def test_a_page_that_is_not_there_is_said_on_a_page(api: Api, path: str) -> None:
    response = api.anonymous.get(path, headers={"Accept": "text/html"})
    assert response.status_code == 404
    assert "No such page" in response.text


@pytest.mark.parametrize(("path", "target"), [("/jobs", "/"), ("/docs", "/openapi.json")])
def test_an_address_that_people_try_leads_to_what_they_look_for(api: Api, path: str, target: str) -> None:
    response = api.anonymous.get(path, headers={"Host": "evil.example"}, follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (307, target)
    assert api.anonymous.get(target).status_code == 200


@pytest.mark.slow
def test_whatever_the_document_allows_is_answered_as_the_document_says(live_api: Api) -> None:
    api = live_api
    api.submit()
    schema = schemathesis.openapi.from_dict(api.admin.get("/openapi.json").json())
    headers = {"Authorization": api.admin.headers["authorization"]}
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    num_operations = 0
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        num_operations += 1

        @settings(
            max_examples=8,
            derandomize=True,
            deadline=None,
            phases=[Phase.generate],
            database=None,
            suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
        )
        @given(case=operation.as_strategy())
        def call(case: Any) -> None:
            case.call_and_validate(base_url=api.url, headers=headers, checks=checks)

        call()
    assert num_operations >= 18
