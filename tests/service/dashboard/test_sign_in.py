"""The sign-in page in a real browser: with a key, with a link, and what it says where that fails."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from service.ids import new_id
from tests.service.dashboard.conftest import PATIENCE_MILLISECONDS
from tests.service.dashboard.site import Site

pytestmark = pytest.mark.browser

SETTINGS = {"DLRM_TRAINER_PYTHON": "/bin/false", "DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Page of a browser that nobody has signed in."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page = context.new_page()
    yield page
    context.close()


def sign_in(page: Page, text: str) -> None:
    page.get_by_label("API key or sign-in link").fill(text)
    page.get_by_role("button", name="Sign in").click()


def test_a_key_signs_in_and_leads_to_the_page_that_asked_for_it(page: Page, site: Site) -> None:
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
    assert key.key not in page.content()


def test_a_pasted_link_signs_in(page: Page, site: Site) -> None:
    link = site.client.create_login_link("viewer", owner="guest")
    page.goto(f"{site.url}/signin")
    sign_in(page, f"{site.url}/signin#token={link.token}")
    page.wait_for_url(f"{site.url}/")


def test_a_revoked_key_is_said_to_be_one(page: Page, site: Site) -> None:
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
        (f"dlrm_{'x' * 43}", "unknown API key"),
        ("http://127.0.0.1/signin#token=nothing", "this sign-in link is unknown, already used or expired"),
        ("my password", "this is neither an API key (dlrm_…) nor a sign-in link"),
    ],
)
def test_what_signs_nobody_in_is_explained_and_can_be_corrected(
    page: Page, site: Site, text: str, message: str
) -> None:
    page.goto(f"{site.url}/signin")
    sign_in(page, text)
    expect(page.get_by_role("alert")).to_contain_text(message)
    sign_in(page, site.client.create_key(new_id("key"), "viewer").key or "")
    page.wait_for_url(f"{site.url}/")
