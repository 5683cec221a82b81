"""The pages of keys and of the audit log: a key is made, found and revoked, and the log says so."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from service.client import Client, ServiceError
from tests.service.dashboard.conftest import Site

pytestmark = pytest.mark.browser

SETTINGS = {"DLRM_TRAINER_PYTHON": "/bin/false", "DLRM_NUM_CORES": "2"}


@pytest.fixture
def admin_key(site: Site) -> str:
    """Key of an admin, as people have it at hand."""
    key = site.client.create_key("at-hand", "admin", owner="root").key
    assert key is not None
    return key


def test_a_key_is_made_with_an_admins_key_found_and_revoked_and_the_audit_log_says_so(
    page: Page, site: Site, admin_key: str
) -> None:
    page.goto(f"{site.url}/keys")
    page.get_by_text("New key", exact=True).click()
    page.get_by_role("button", name="Make the key").click()
    expect(page.locator("#create-name-error")).to_contain_text("such as laptop")
    expect(page.locator("#create-admin_key-error")).to_contain_text("role admin")
    page.locator("#create-name").fill("laptop")
    page.locator("#create-owner").fill("ann")
    expect(page.locator("#command")).to_have_text(
        "dlrm keys create laptop --owner ann --role submitter --expires-in-days 90"
    )
    page.locator("#create-admin_key").fill(admin_key)
    page.get_by_role("button", name="Make the key").click()
    expect(page.locator("#secret")).to_contain_text("dlrm_")
    made = Client(site.url, page.locator("#secret").inner_text())
    assert made.me().owner == "ann"
    expect(page.locator("#create-admin_key")).to_have_value("")
    page.get_by_role("button", name="I have copied it").click()
    expect(page.locator("#secret")).to_be_empty()

    page.get_by_label("Search").fill("ANN")
    expect(page.locator("#keys tbody tr")).to_have_count(1)
    webhook = made.create_webhook("https://93.184.216.34/hook")
    page.get_by_role("button", name="Revoke laptop of ann").click()
    expect(page.locator("#revoke-consequences")).to_contain_text(f"1 webhook will send nothing more: {webhook.url}")
    page.get_by_role("button", name="Revoke", exact=True).click()
    expect(page.locator("#none")).to_be_visible()
    page.select_option("#state", "revoked")
    expect(page.locator("#keys tbody tr")).to_contain_text(["revoked"])
    assert page.url == f"{site.url}/keys?q=ANN&state=revoked"
    with pytest.raises(ServiceError, match="revoked"):
        made.me()
    made.close()

    page.goto(f"{site.url}/audit?action=key_revoked")
    row = page.locator("#events tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("revoked key laptop of ann, submitter")
    expect(row.locator("th")).to_have_text("adminkey admin")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#events tbody tr", has_text="made key at-hand of root, admin")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith("time,actor,key,")
    assert len(lines) == 1 + page.locator("#events tbody tr").count()


@pytest.mark.slow
def test_who_is_no_admin_sees_the_keys_of_its_owner_and_why_the_audit_log_is_closed(page: Page, site: Site) -> None:
    site.client.create_key("own", "viewer", owner="eve")
    link = site.client.create_login_link("viewer", owner="eve")
    page.goto(f"{site.url}/signin#token={link.token}")
    page.wait_for_url(f"{site.url}/")
    page.get_by_role("link", name="Keys").click()
    expect(page.locator("#keys tbody th")).to_contain_text(["own"])
    expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    expect(page.get_by_role("button", name="Revoke")).to_have_count(0)
    expect(page.locator("#new-key")).to_be_hidden()
    page.goto(f"{site.url}/audit")
    expect(page.locator("#refused")).to_contain_text("You are signed in as eve, with the role viewer.")
    expect(page.locator("#content")).to_be_hidden()
