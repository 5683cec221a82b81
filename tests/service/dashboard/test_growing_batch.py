"""Page of a job whose batch grows, with a trainer that reports two sizes."""

import pytest
from playwright.sync_api import Page, expect

from tests.service.dashboard.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {"DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64, "schedule": [{"until_fraction": 0.25, "global_size": 32}]},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
    "labels": {"behaviour": "grow_batch"},
}


def test_the_page_tells_the_present_batch_its_stages_and_the_share_of_samples(page: Page, site: Site) -> None:
    job = site.client.submit(DOCUMENT)
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#tiles div").filter(has=page.get_by_text("Batch", exact=True))).to_have_text(
        "Batch64stages: 32 until 25 %, then 64"
    )
    # Two steps of five have made a tenth of the samples.
    expect(page.locator("#progress-text")).to_contain_text("10 % · step 2 of 5")
    shown = site.client.job(job.id)
    assert (shown.progress.done_fraction, [stage.is_current for stage in shown.batch_stages]) == (0.1, [False, True])
    site.client.cancel(job.id)


@pytest.mark.slow
def test_the_page_shortens_many_stages(page: Page, site: Site) -> None:
    job = site.client.submit({**DOCUMENT, "batch": {"global_size": 64, "schedule": "auto"}})
    page.goto(f"{site.url}/jobs/{job.id}")
    # From 8, four sizes for each doubling.
    expect(page.locator("#tiles div").filter(has=page.get_by_text("Batch", exact=True))).to_contain_text(
        "stages: 8 until 20 %, then 10 more sizes, then 54 until 56.67 %, then 64"
    )
    site.client.cancel(job.id)
