"""Panel of what to change on the page of a job."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.service.dashboard.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {
    "DLRM_NUM_CORES": "3",
    "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2",
    "DLRM_GRACE_PERIOD_SECONDS": "5",
}
DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}
PANEL = "#advice-panel"


def test_the_panel_has_figures_lines_to_copy_and_a_link_to_a_new_job(page: Page, site: Site) -> None:
    ended = site.client.submit({**DOCUMENT, "labels": {"behaviour": "fall_behind"}})
    page.goto(f"{site.url}/jobs/{ended.id}")
    item = page.locator(f"{PANEL} [data-name=worse_than_logistic_regression]")
    expect(item).to_contain_text("0.0500 below the 0.8000 ± 0.0040 of logistic regression")
    expect(item.locator(".gain")).to_have_text("Gain: about 0.0500 of AUC, or more")
    expect(item.locator(".certainty")).to_have_text("sure")
    expect(item.locator("pre")).to_have_text('run.blend = "logistic"\nrun.validation_fraction = 0.1')
    expect(item.get_by_role("link", name="New job with this")).to_have_attribute(
        "href",
        re.compile(rf"^/new\?from={ended.id}&set=run\.blend%3A%22logistic%22&set=run\.validation_fraction%3A0\.1$"),
    )
