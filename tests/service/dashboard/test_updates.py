"""How pages stay up to date: through one stream each, and by asking again where something holds it back."""

import re
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from service.client import ServiceError
from tests.service.dashboard.conftest import Site

pytestmark = pytest.mark.browser

SETTINGS = {"DLRM_TRAINER_PYTHON": "/bin/false", "DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
DOCUMENT = {
    "name": "waiting",
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"memory": "1GiB"},
}


def submit_held(site: Site) -> str:
    """Submit a job that waits until it is released, and return its id."""
    while True:
        job = site.client.submit(DOCUMENT)
        # Unless it was started already.
        with suppress(ServiceError):
            return site.client.hold(job.id).id


def note_requests(page: Page) -> list[str]:
    """Note the paths of the API that the page requests from now on."""
    paths: list[str] = []
    page.on("request", lambda request: paths.append(urlsplit(request.url).path))
    return paths


def test_the_page_of_a_job_asks_only_for_what_has_changed(page: Page, site: Site) -> None:
    job_id = submit_held(site)
    with page.expect_response(re.compile("/stream")):
        page.goto(f"{site.url}/jobs/{job_id}/events")
    expect(page.locator("#events")).to_contain_text("held")
    page.wait_for_load_state("load")
    paths = note_requests(page)
    site.client.cancel(job_id)
    expect(page.locator("#state")).to_have_text("cancelled")
    expect(page.locator("#events")).to_contain_text("cancelled")
    own = f"/v1/jobs/{job_id}"
    assert paths.count(f"{own}/stream") == 0
    # At the end everything is looked at once more.
    assert paths.count(own) <= 2


def test_the_list_shows_a_new_job_without_being_read_again(page: Page, site: Site) -> None:
    with page.expect_response(re.compile("/stream")):
        page.goto(site.url)
    page.wait_for_function(
        "() => performance.getEntriesByType('resource').filter(e => e.name.includes('/v1/jobs')).length > 1"
    )
    paths = note_requests(page)
    job_id = submit_held(site)
    expect(page.locator("#jobs")).to_contain_text(job_id)
    site.client.cancel(job_id)
    expect(page.locator("#jobs tr", has_text=job_id)).to_contain_text("cancelled")
    assert "/v1/jobs" not in paths


def test_pages_ask_again_where_a_proxy_refuses_streams(signed_in: BrowserContext, site: Site) -> None:
    def refuse(route: Route) -> None:
        route.fulfill(status=503, body="no streams here")

    # The browser reports the refusal, which the fixture `page` takes for a fault.
    page = signed_in.new_page()
    page.route(re.compile("/stream"), refuse)
    job_id = submit_held(site)
    page.goto(f"{site.url}/jobs/{job_id}")
    expect(page.locator("#state")).to_have_text("queued")
    site.client.cancel(job_id)
    expect(page.locator("#state")).to_have_text("cancelled")
    page.close()
