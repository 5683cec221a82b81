"""The pages while a job prepares its data, with a trainer that never finishes that."""

import pytest
from playwright.sync_api import Page, expect

from tests.service.dashboard.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {"DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2", "DLRM_GRACE_PERIOD_SECONDS": "5"}
DOCUMENT = {
    "labels": {"behaviour": "prepare"},
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}


def test_how_far_a_preparation_is_and_how_fast_stands_on_both_pages(page: Page, site: Site) -> None:
    job = site.client.submit(DOCUMENT)
    words = "preparing · reading: 1,200,000 rows, 310,000 rows/s, 12 s left"
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#progress-text")).to_have_text(f"42 % · {words}")
    expect(page.locator("#progress")).to_have_js_property("value", 0.42)
    page.goto(f"{site.url}/")
    expect(page.locator("#jobs tbody tr", has_text=job.id).locator("td.progress small")).to_have_text(words)
    site.client.cancel(job.id)
    expect(page.locator("#jobs tbody tr", has_text=job.id).locator(".state")).to_have_text("cancelled")
