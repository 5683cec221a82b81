"""Noise of the gradient on the page of a job, with a trainer that reports it or none."""

import pytest
from playwright.sync_api import Page, expect

from tests.service.dashboard.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {"DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}
FIGURES = ("#noise-scale", "#gsnr", "#shares", "#advice")


def open_job_page(page: Page, site: Site, behaviour: str) -> None:
    """Submit a job, open its page, and wait until it has succeeded."""
    job = site.client.submit({**DOCUMENT, "labels": {"behaviour": behaviour}})
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#state")).to_have_text("succeeded")
    expect(page.locator("#loss-chart")).to_have_attribute("data-points", "5")


def test_noise_scale_ratios_shares_and_advice_are_drawn_where_they_were_measured(page: Page, site: Site) -> None:
    open_job_page(page, site, "measure_noise")
    for figure in FIGURES[:3]:
        expect(page.locator(f"{figure} .chart")).to_have_attribute("data-points", "5")
    legends = ["noise scale", "batch"], ["bottom.layers.0", "top.layers.1"], ["at gamma", "at 1"]
    for figure, labels in zip(FIGURES, legends, strict=False):
        expect(page.locator(f"{figure} .u-label")).to_have_text(["step", *labels])
    expect(page.locator("#tiles div", has_text="Noise scale")).to_have_text("Noise scale30batch 64")

    expect(page.locator("#advice .hint")).to_have_text("batches are useful up to about 32")
    rows = page.locator("#advice tbody tr")
    assert [row.locator("td, th").all_inner_texts() for row in rows.all()][2:5] == [
        ["32", "1.32", "0.66", "1.94", "2.07", "largest useful"],
        ["64", "1.00", "1.00", "1.47", "3.13", "this run"],
        ["128", "0.84", "1.68", "1.23", "5.27", ""],
    ]


def test_the_noise_of_a_point_is_read_off_the_chart(page: Page, site: Site) -> None:
    open_job_page(page, site, "measure_noise")
    chart = page.locator("#noise-scale .u-over")
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": box["width"] - 1, "y": 5})
    expect(page.locator("#noise-scale .u-value")).to_have_text(["5", "30", "64"])


@pytest.mark.slow
def test_a_run_that_measures_no_noise_has_no_empty_charts_of_it(page: Page, site: Site) -> None:
    open_job_page(page, site, "succeed")
    for figure in FIGURES:
        expect(page.locator(figure)).to_be_hidden()
    expect(page.locator("#tiles")).not_to_contain_text("Noise scale")
