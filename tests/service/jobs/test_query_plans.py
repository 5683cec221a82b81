"""Whatever is asked of many jobs, an index has the answer."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest

from service.settings import Settings
from tests.service.api import Api, serve_api
from tests.service.databases import on_both_databases
from tests.service.fixtures import lend_settings
from tests.service.query_plans import check_plans, explain, record_statements
from tests.service.seeding import INTERVAL, OWNERS, START, seed

pytestmark = on_both_databases

NUM_JOBS = 3000
MIDDLE = START + NUM_JOBS // 2 * INTERVAL
FILTERS: dict[str, list[Any]] = {
    "state": ["SUCCEEDED", "QUEUED", ["FAILED", "CANCELLED", "QUEUED"]],
    "owner": [OWNERS[0]],
    "name": ["sweep-7"],
    "label": ["team:ads", "sweep:sweep-3", ["team:ads", "sweep:sweep-3"]],
    "created_after": [MIDDLE.isoformat()],
    "finished_before": [MIDDLE.isoformat(), (START + timedelta(hours=9)).isoformat()],
    "q": ["weep", "nothing-like-it", "sw"],
    "cursor": ["job_01KDVDKFD03EA38PB0476E8XMF"],
}


@pytest.fixture(scope="module")
def full_api(
    database_kind: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Api]:
    """Service with many jobs, shared by the tests of this file."""
    lent: AbstractContextManager[Settings] = lend_settings(tmp_path_factory.mktemp("full"), database_kind, request)
    with (
        lent as settings,
        serve_api(settings.model_copy(update={"requests_per_second": 1e6}), runs_control_loop=False) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def long_job(full_api: Api) -> str:
    """Fill the database with jobs, and return the one that has many reports."""
    return seed(full_api.services.database, NUM_JOBS, num_steps=100)


def list_queries(sizes: range) -> Iterator[dict[str, Any]]:
    """Yield all combinations of so many filters, with each value of a filter in some of them."""
    number = 0
    for size in sizes:
        for names in combinations(FILTERS, size):
            number += 1
            yield {name: FILTERS[name][(number + place) % len(FILTERS[name])] for place, name in enumerate(names)}


@pytest.mark.parametrize(
    "sizes",
    [range(3), pytest.param(range(3, len(FILTERS) + 1), marks=pytest.mark.slow)],
    ids=["two filters at most", "more filters"],
)
def test_every_request_about_jobs_uses_an_index(full_api: Api, long_job: str, sizes: range) -> None:
    database = full_api.services.database
    waiting = full_api.admin.get("/v1/jobs?state=QUEUED").json()["items"]
    paths = [
        *(f"/v1/jobs/{job_id}" for job_id in (long_job, waiting[0]["id"])),
        *(f"/v1/jobs/{long_job}/{part}" for part in ("events", "attempts", "checkpoints")),
        *(
            f"/v1/facets{query}"
            for query in ("", "?state=FAILED&owner=ads", "?label=team:ads&q=weep", "?q=nothing-like-it")
        ),
        *("/v1/labels", "/v1/labels?name=team&cursor=team:ads", "/v1/capacity"),
        *(
            f"/v1/jobs/{long_job}/events?{query}"
            for query in ("order=desc&cursor=9", "name=plan&name=decided&order=desc", "name=plan&name=state&order=desc")
        ),
        *("/v1/capacity/use", "/v1/capacity/history", "/v1/capacity/history?hours=168", "/v1/queue"),
    ]
    if 0 not in sizes:
        # Some answers are kept for a while, and were given already.
        paths = []
    requests: list[tuple[str, dict[str, Any]]] = [(path, {}) for path in paths] + [
        ("/v1/jobs", query) for query in list_queries(sizes)
    ]
    for number, (path, query) in enumerate(requests):
        # An admin may see the jobs of all owners.
        client = full_api.admin if number < len(paths) or number % 2 else full_api.viewer
        with record_statements(database) as statements:
            client.get(path, params=query or None).raise_for_status()
        check_plans(database, statements)


@pytest.mark.usefixtures("long_job")
def test_every_round_uses_an_index(full_api: Api) -> None:
    services = full_api.services
    with record_statements(services.database) as statements:
        assert services.control.run_once()
    check_plans(services.database, statements)
    plans = "\n".join(explain(services.database, statement) for statement in statements)
    # What runs has indexes of its own, however many jobs have ended.
    assert {"ix_jobs_watched", "ix_attempts_active"} <= set(re.findall(r"\bix_\w+", plans))
