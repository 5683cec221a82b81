"""The pages and the sign-in in a real browser, against a real service whose trainer fails at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from service.client import Job
from service.ids import new_id
from tests.patience import wait_until
from tests.service.dashboard.conftest import Site, make_context

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


@pytest.fixture
def unsigned_page(browser: Browser) -> Iterator[Page]:
    """Page of a browser that nobody has signed in."""
    context = make_context(browser)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def failed_job(site: Site) -> Job:
    """A job that has failed."""
    job = site.client.submit(DOCUMENT)
    return wait_until(lambda: found if (found := site.client.job(job.id)).state == "FAILED" else None)


def sign_in(page: Page, text: str) -> None:
    page.get_by_label("API key or sign-in link").fill(text)
    page.get_by_role("button", name="Sign in").click()


def test_without_jobs_the_list_says_how_to_submit_one(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/")
    expect(page.locator("#empty pre")).to_contain_text(f"DLRM_URL={site.url}\ndlrm submit")
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


def test_a_failed_job_shows_its_reason_and_the_list_escapes_what_users_wrote(
    page: Page, site: Site, failed_job: Job
) -> None:
    page.goto(f"{site.url}/")
    row = page.locator("#jobs tbody tr", has_text=failed_job.id)
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
    expect(page.locator("#files")).to_contain_text(f"runs/{job.id}")
    expect(page.locator("#labels")).to_have_text(f"note: {HOSTILE}")
    page.get_by_role("link", name="Events").click()
    expect(page.locator('#events li[data-what="failed"] strong')).to_have_css("color", "rgb(192, 44, 56)")
    page.get_by_role("link", name="Document").click()
    expect(page.locator("#document")).to_contain_text("global_size = 64")


@pytest.mark.slow
def test_a_filter_shows_jobs_of_one_state(page: Page, site: Site, failed_job: Job) -> None:
    page.goto(f"{site.url}/")
    row = page.locator("#jobs tbody tr", has_text=failed_job.id)
    expect(row.locator(".state")).to_have_text("failed")
    page.get_by_role("link", name="Running").click()
    expect(page.locator("#nothing")).to_be_visible()
    page.get_by_role("link", name="Failed in the last day").click()
    expect(row).to_be_visible()


@pytest.mark.parametrize("path", ["/", pytest.param("/jobs/{id}", marks=pytest.mark.slow)])
def test_a_narrow_screen_needs_no_sideways_scrolling(page: Page, site: Site, failed_job: Job, path: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(site.url + path.format(id=failed_job.id))
    expect(page.locator(".state").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_job_that_is_not_there_is_said(browser: Browser, site: Site, cookie_file: Path) -> None:
    page = browser.new_context(storage_state=cookie_file).new_page()
    page.goto(f"{site.url}/jobs/job_nowhere")
    expect(page.locator("#absent")).to_contain_text("no job job_nowhere")
    page.close()


def test_signing_out_ends_the_session(browser: Browser, site: Site, cookie_file: Path) -> None:
    # A request of the page may be under way, and be refused then.
    page = browser.new_context(storage_state=cookie_file).new_page()
    page.goto(f"{site.url}/")
    expect(page.locator("#capacity")).not_to_be_empty()
    page.click("#signout")
    page.wait_for_url(f"{site.url}/signin")
    assert page.context.cookies() == []
    page.close()


def test_a_key_signs_in_and_leads_to_the_page_that_asked_for_it(unsigned_page: Page, site: Site) -> None:
    page = unsigned_page
    key = site.client.create_key("dashboard", "viewer")
    page.goto(f"{site.url}/jobs/job_1")
    page.wait_for_url(f"{site.url}/signin")
    sign_in(page, f" {key.key}\n")
    page.wait_for_url(f"{site.url}/jobs/job_1")
    cookie = page.context.cookies()[0]
    assert cookie.get("httpOnly")
    assert cookie.get("sameSite") == "Strict"
    assert not cookie.get("secure")
    assert page.evaluate("document.cookie") == ""
    assert key.key
    assert key.key not in page.content()


def test_a_pasted_link_signs_in(unsigned_page: Page, site: Site) -> None:
    page = unsigned_page
    link = site.client.create_login_link("viewer", owner="guest")
    page.goto(f"{site.url}/signin")
    sign_in(page, f"{site.url}/signin#token={link.token}")
    page.wait_for_url(f"{site.url}/")


@pytest.mark.slow
def test_a_revoked_key_is_said_to_be_one(unsigned_page: Page, site: Site) -> None:
    page = unsigned_page
    key = site.client.create_key("short-lived", "viewer")
    site.client.revoke_key(key.id)
    page.goto(f"{site.url}/signin")
    sign_in(page, key.key or "")
    expect(page.get_by_role("alert")).to_contain_text("Not signed in: this API key was revoked")
    expect(page.get_by_role("alert")).to_contain_text("ask an administrator for another one")
    assert page.url == f"{site.url}/signin"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(f"dlrm_{'x' * 43}", "unknown API key", marks=pytest.mark.slow),
        pytest.param(
            "http://127.0.0.1/signin#token=nothing",
            "this sign-in link is unknown, already used or expired",
            marks=pytest.mark.slow,
        ),
        ("my password", "this is neither an API key (dlrm_…) nor a sign-in link"),
    ],
)
def test_what_signs_nobody_in_is_explained_and_can_be_corrected(
    unsigned_page: Page, site: Site, text: str, message: str
) -> None:
    page = unsigned_page
    page.goto(f"{site.url}/signin")
    sign_in(page, text)
    expect(page.get_by_role("alert")).to_contain_text(message)
    sign_in(page, site.client.create_key(new_id("key"), "viewer").key or "")
    page.wait_for_url(f"{site.url}/")
