"""The pages in a real browser, against a real service whose trainer fails at once."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.service.dashboard.site import Site

pytestmark = pytest.mark.browser

SETTINGS = {"DLRM_TRAINER_PYTHON": "/bin/false", "DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
HOSTILE = "<img src=x onerror=alert(1)>"
DOCUMENT = {
    "name": "first",
    "labels": {"note": HOSTILE},
    "max_restarts": 0,
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"memory": "1GiB"},
}


def test_without_jobs_the_list_says_how_to_submit_one(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/")
    expect(page.locator("#empty pre")).to_contain_text("dlrm submit")
    expect(page.locator("#capacity")).to_contain_text("of 2 cores free")


def test_a_page_without_a_session_leads_to_sign_in(browser: Browser, site: Site) -> None:
    page = browser.new_page()
    page.goto(f"{site.url}/jobs/job_1")
    page.wait_for_url(f"{site.url}/signin")
    expect(page.locator("#progress")).to_contain_text("Sign in with an API key")
    page.close()


def test_the_sign_in_link_leaves_no_token_behind_and_works_once(
    browser: Browser, site: Site, cookie_file: Path
) -> None:
    assert cookie_file.exists()
    page = browser.new_page()
    page.goto(site.signin_link)
    expect(page.get_by_role("alert")).to_contain_text("Not signed in")
    assert page.url == f"{site.url}/signin"
    page.close()


def test_a_failed_job_shows_its_reason_and_the_list_escapes_what_users_wrote(page: Page, site: Site) -> None:
    job = site.client.submit(DOCUMENT)
    page.goto(f"{site.url}/")
    row = page.locator("#jobs tbody tr", has_text=job.id)
    expect(row.locator(".state")).to_have_text("failed")
    expect(row.locator(".reason")).to_have_text("worker crashed")
    expect(row.locator(".label")).to_have_text(f"note: {HOSTILE}")
    assert page.locator("main img").count() == 0


def test_the_page_of_a_job_follows_it_to_its_end(page: Page, site: Site) -> None:
    job = site.client.submit(DOCUMENT)
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#state")).to_have_text("failed")
    expect(page.locator("#message")).not_to_be_empty()
    expect(page.locator("#cancel")).to_be_hidden()
    expect(page.locator('#events li[data-what="failed"] strong')).to_have_css("color", "rgb(192, 44, 56)")
    expect(page.locator("#files")).to_contain_text(f"runs/{job.id}")
    expect(page.locator("#labels")).to_have_text(f"note: {HOSTILE}")
    expect(page.locator("#document")).to_contain_text('"global_size": 64')


def test_a_filter_shows_jobs_of_one_state(page: Page, site: Site) -> None:
    job = site.client.submit(DOCUMENT)
    page.goto(f"{site.url}/")
    row = page.locator("#jobs tbody tr", has_text=job.id)
    expect(row.locator(".state")).to_have_text("failed")
    page.select_option("#state", "SUCCEEDED")
    expect(page.locator("#empty")).to_be_visible()
    page.select_option("#state", "FAILED")
    expect(row).to_be_visible()


@pytest.mark.parametrize("path", ["/", "/jobs/{id}"])
def test_a_narrow_screen_needs_no_sideways_scrolling(page: Page, site: Site, path: str) -> None:
    job = site.client.submit(DOCUMENT)
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(site.url + path.format(id=job.id))
    expect(page.locator(".state").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_job_that_is_not_there_is_said(browser: Browser, site: Site, cookie_file: Path) -> None:
    page = browser.new_context(storage_state=cookie_file).new_page()
    page.goto(f"{site.url}/jobs/job_nowhere")
    expect(page.locator("#trouble")).to_contain_text("job_nowhere")
    page.close()


def test_signing_out_ends_the_session(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/")
    expect(page.locator("#capacity")).not_to_be_empty()
    page.click("#signout")
    page.wait_for_url(f"{site.url}/signin")
    assert page.context.cookies() == []
