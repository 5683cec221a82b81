"""Quality of a model on the page of its job, with a trainer that reports simple models beside it or none."""

import pytest
from playwright.sync_api import Page, expect

from tests.service.dashboard.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {"DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
UNKNOWN = "\N{EN DASH}"
DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}


def open_job_page(page: Page, site: Site, behaviour: str) -> str:
    """Submit a job, open its page, wait until it has succeeded, and return its id."""
    job = site.client.submit({**DOCUMENT, "labels": {"behaviour": behaviour}})
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#state")).to_have_text("succeeded")
    return job.id


def test_a_model_worse_than_logistic_regression_is_no_plain_success(page: Page, site: Site) -> None:
    job = site.client.job(open_job_page(page, site, "fall_behind"))
    [warning] = job.warnings
    assert [result.name for result in job.yardsticks] == ["logistic_regression"]
    expect(page.locator("#warnings li")).to_have_text(warning)
    expect(page.locator("#state[data-warned]")).to_be_visible()
    rows = page.locator("#yardsticks tbody tr")
    expect(rows).to_have_count(3)
    assert [row.locator("td, th").all_inner_texts() for row in rows.all()] == [
        ["this model", "0.7500 ± 0.0050", "0.4500", UNKNOWN, UNKNOWN, UNKNOWN],
        ["logistic regression", "0.8000 ± 0.0040", "0.4200", "1.0100", "1.5", "9,000"],
        ["constant predictor", UNKNOWN, "0.5500", UNKNOWN, UNKNOWN, UNKNOWN],
    ]
    page.goto(site.url)
    expect(page.locator(".state[data-warned]")).to_have_text("succeeded")


def test_what_a_run_has_too_little_of_stands_on_its_page_while_it_runs(page: Page, site: Site) -> None:
    job = site.client.submit({**DOCUMENT, "labels": {"behaviour": "wait_warned"}})
    page.goto(f"{site.url}/jobs/{job.id}")
    sentences = ["the run has only 4 steps to learn in", "there are only 100 evaluation rows"]
    expect(page.locator("#warnings li")).to_have_text(sentences)
    expect(page.locator("#state")).to_have_text("running")
    site.client.cancel(job.id)


@pytest.mark.slow
def test_a_job_without_simple_models_has_neither_table_nor_warnings(page: Page, site: Site) -> None:
    job = site.client.job(open_job_page(page, site, "succeed"))
    assert (job.warnings, job.yardsticks) == ([], [])
    for hidden in ("#yardsticks", "#warnings"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.locator("#state[data-warned]")).to_have_count(0)
