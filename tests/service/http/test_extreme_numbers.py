"""Job documents with extreme numbers in any field: the service refuses or plans them, and never fails itself."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from service.plans.plan_process import Planner
from tests.dlrm.config.extreme_documents import BASE, draw_documents, set_value
from tests.patience import PATIENCE_SECONDS
from tests.service.api import Api, make_settings, serve_api

EXAMPLES = settings(suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def planning_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Service with the real planning program."""
    directory = tmp_path_factory.mktemp("extreme")
    own = make_settings(directory, f"sqlite:///{directory}/state/service.sqlite3")
    with serve_api(own.model_copy(update={"trainer_python": Path(sys.executable)}), runs_control_loop=False) as api:
        api.services.plans._planner = Planner(Path(sys.executable), max_seconds=PATIENCE_SECONDS)
        yield api


@pytest.mark.parametrize("route", ["/v1/jobs", "/v1/plans"])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("dense_optimizer", "learning_rate"), 1e308),
        (("dense_optimizer", "learning_rate"), 10**400),
        (("dense_optimizer", "schedule", "base_batch"), 10**400),
        (("deadline_seconds",), 10**18),
        (("run", "validation_fraction"), 5e-324),
    ],
)
def test_a_number_beyond_what_can_be_computed_is_refused_with_its_field(
    planning_api: Api, route: str, path: tuple[str, ...], value: float
) -> None:
    response = planning_api.submitter.post(route, json=set_value(BASE, path, value))
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [".".join(path)]


@pytest.mark.parametrize(
    ("route", "num_examples"),
    [
        ("/v1/jobs", 100),
        ("/v1/plans", 30),
        pytest.param("/v1/plans", 1000, marks=pytest.mark.soak, id="many plans"),
    ],
)
def test_no_numbers_make_the_service_fail(planning_api: Api, route: str, num_examples: int) -> None:
    @settings(EXAMPLES, max_examples=num_examples)
    @given(draw_documents())
    def send(document: dict[str, Any]) -> None:
        response = planning_api.submitter.post(route, json=document)
        assert response.status_code in (200, 201, 422), response.text

    send()
