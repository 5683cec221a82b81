"""The page of a new job in a real browser, against a real service whose trainer fails at once."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from tests.service.dashboard.conftest import Site, make_context

pytestmark = pytest.mark.browser

SETTINGS = {"DLRM_TRAINER_PYTHON": "/bin/false", "DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
PRESET_LINE = 'preset = "large_batch"\n'
DOCUMENT = """\
name = "typed"  # kept
max_restarts = 0

[data]
format = "synthetic"
synthetic = { num_rows = 1000 }

[batch]
global_size = 64

[resources]
memory = "1GiB"
"""


@pytest.fixture
def failing_page(browser: Browser, cookie_file: Path) -> Iterator[Page]:
    """Signed-in page whose requests may fail."""
    context = make_context(browser, cookie_file)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def write(page: Page, site: Site, text: str) -> None:
    """Open the page of a new job, and write a document."""
    page.goto(f"{site.url}/new")
    page.get_by_label("Job document").fill(text)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()


def expect_text(page: Page, text: str) -> None:
    expect(page.get_by_label("Job document")).to_have_value(text)


def list_keys(page: Page) -> list[str]:
    """Return the list to which every submission of the page from now on adds its idempotency key."""
    keys: list[str] = []

    def note(request: Request) -> None:
        if request.method == "POST" and request.url.endswith("/v1/jobs"):
            keys.append(request.headers["idempotency-key"])

    page.on("request", note)
    return keys


def test_the_list_of_jobs_leads_to_a_new_one(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/")
    page.locator("#empty").get_by_role("link").click()
    page.wait_for_url(f"{site.url}/new")
    page.go_back()
    page.get_by_role("link", name="New job").click()
    page.wait_for_url(f"{site.url}/new")


def test_a_submitted_document_leads_to_the_page_of_its_job(page: Page, site: Site) -> None:
    write(page, site, DOCUMENT)
    press(page, "Submit")
    page.wait_for_url(re.compile("/jobs/job_"))
    expect(page.locator("#name")).to_have_text("typed")
    job = site.client.job(page.url.rpartition("/")[2])
    assert job.spec["batch"]["global_size"] == 64


@pytest.mark.slow
def test_a_double_click_makes_one_job(page: Page, site: Site) -> None:
    num_before = len(list(site.client.jobs()))
    write(page, site, DOCUMENT)
    page.get_by_role("button", name="Submit").dblclick()
    page.wait_for_url(re.compile("/jobs/job_"))
    assert len(list(site.client.jobs())) == num_before + 1


def test_a_document_whose_answer_was_lost_is_submitted_again_as_the_same_job(failing_page: Page, site: Site) -> None:
    page, keys = failing_page, list_keys(failing_page)
    num_before = len(list(site.client.jobs()))
    write(page, site, DOCUMENT)
    page.route("**/v1/jobs", lambda route: (route.fetch(), route.abort()))
    press(page, "Submit")
    expect(page.get_by_role("alert").last).to_contain_text("does not answer")
    page.unroute("**/v1/jobs")
    page.reload()
    press(page, "Submit")
    page.wait_for_url(re.compile("/jobs/job_"))
    assert keys[0] == keys[1]
    assert len(list(site.client.jobs())) == num_before + 1


def test_a_changed_document_and_one_that_became_a_job_are_submitted_anew(failing_page: Page, site: Site) -> None:
    page, keys = failing_page, list_keys(failing_page)
    write(page, site, f"nmae = 'x'\n{DOCUMENT}")
    press(page, "Submit")
    expect(page.locator("#problem")).to_be_visible()
    page.get_by_label("Job document").fill(DOCUMENT)
    for _ in range(2):
        press(page, "Submit")
        page.wait_for_url(re.compile("/jobs/job_"))
        page.goto(f"{site.url}/new")
        expect_text(page, DOCUMENT)
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    ("button", "busy"), [pytest.param("Check", "Checking…", marks=pytest.mark.slow), ("Submit", "Submitting…")]
)
def test_while_a_request_runs_its_button_says_so_and_none_can_be_pressed(
    failing_page: Page, site: Site, button: str, busy: str
) -> None:
    page = failing_page
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile("/v1/(jobs|plans)$"), hold)
    write(page, site, DOCUMENT)
    page.get_by_role("button", name=button).press("Enter")
    expect(page.get_by_role("button", name=busy)).to_be_disabled()
    expect(page.locator("#check")).to_be_disabled()
    expect(page.locator("#submit")).to_be_disabled()
    page.get_by_label("Job document").press("Control+Enter")
    page.get_by_role("button", name=busy).focus()
    held[0].fulfill(status=503, json={"title": "Too many requests at once", "detail": "try again soon"})
    expect(page.locator("#problem")).to_contain_text("try again soon")
    expect(page.get_by_role("button", name=button)).to_be_enabled()
    assert len(held) == 1


@pytest.mark.slow
def test_a_button_has_the_focus_again_once_its_request_has_ended(failing_page: Page, site: Site) -> None:
    page = failing_page
    write(page, site, "nmae = 'x'")
    page.get_by_role("button", name="Check").press("Enter")
    expect(page.locator("#problem")).to_be_visible()
    expect(page.get_by_role("button", name="Check")).to_be_focused()


@pytest.mark.parametrize("button", ["Check", pytest.param("Submit", marks=pytest.mark.slow)])
def test_a_wrong_field_is_named_with_what_would_be_valid_and_the_text_stays(
    failing_page: Page, site: Site, button: str
) -> None:
    page, text = failing_page, DOCUMENT.replace("global_size", "global_sise")
    write(page, site, text)
    press(page, button)
    expect(page.locator("#problem code")).to_have_text("batch.global_sise")
    expect(page.locator("#problem")).to_contain_text("did you mean 'global_size'?")
    expect(page.locator("#problem small")).to_contain_text("valid: ")
    expect(page.get_by_label("Job document")).to_have_attribute("aria-invalid", "true")
    expect_text(page, text)


def test_a_line_that_is_no_toml_is_selected_and_the_text_stays(failing_page: Page, site: Site) -> None:
    page, text = failing_page, DOCUMENT.replace("global_size =", "global_size")
    write(page, site, text)
    press(page, "Check")
    expect(page.locator("#problem")).to_contain_text("(at line 9, column 13)")
    expect(page.get_by_label("Job document")).to_be_focused()
    assert page.evaluate("getSelection().toString()") == "global_size 64"
    expect_text(page, text)


@pytest.mark.slow
def test_an_empty_document_is_said_to_be_empty(page: Page, site: Site) -> None:
    write(page, site, " \n")
    press(page, "Submit")
    expect(page.locator("#problem")).to_contain_text("The document is empty")


@pytest.mark.slow
def test_a_service_that_cannot_plan_says_why(failing_page: Page, site: Site) -> None:
    write(failing_page, site, DOCUMENT)
    press(failing_page, "Check")
    expect(failing_page.locator("#problem")).to_contain_text("The planning program failed")


@pytest.mark.slow
def test_the_text_outlives_a_reload_and_a_sign_in(failing_page: Page, site: Site) -> None:
    page = failing_page
    write(page, site, DOCUMENT)
    page.reload()
    expect_text(page, DOCUMENT)
    page.context.clear_cookies()
    press(page, "Submit")
    page.wait_for_url(f"{site.url}/signin")
    page.get_by_label("API key or sign-in link").fill(site.client.create_key("typist", "submitter").key or "")
    press(page, "Sign in")
    page.wait_for_url(f"{site.url}/new")
    expect_text(page, DOCUMENT)


@pytest.mark.slow
def test_a_viewer_is_told_that_its_role_may_not_submit(failing_page: Page, site: Site) -> None:
    page, link = failing_page, site.client.create_login_link("viewer", owner="guest")
    page.context.clear_cookies()
    page.goto(f"{site.url}/signin#token={link.token}")
    page.wait_for_url(f"{site.url}/")
    write(page, site, DOCUMENT)
    press(page, "Submit")
    expect(page.locator("#problem")).to_contain_text("Not allowed")
    expect(page.locator("#problem")).to_contain_text("requires the role submitter")
    expect_text(page, DOCUMENT)


@pytest.mark.slow
def test_the_choice_of_a_preset_is_a_line_of_the_document(page: Page, site: Site) -> None:
    none, large_batch = page.get_by_label("none"), page.get_by_label("large_batch")
    write(page, site, DOCUMENT)
    expect(none).to_be_checked()
    large_batch.check()
    expect_text(page, PRESET_LINE + DOCUMENT)
    none.check()
    expect_text(page, DOCUMENT)


def test_the_choice_follows_what_the_document_says(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/new")
    for line, chosen in (
        ('preset = "large_batch"', "large_batch"),
        ('#preset = "large_batch"', "none"),
        ("  'preset'='large_batch' # why", "large_batch"),
        ('[x]\npreset = "large_batch"', "none"),
        ('preset = "huge_batch"', None),
        ('presets = "large_batch"', "none"),
        ("preset = 5", None),
    ):
        page.get_by_label("Job document").fill(f'name = "a"\n{line}\n')
        for name in ("none", "large_batch"):
            expect(page.get_by_label(name)).to_be_checked(checked=name == chosen)


@pytest.mark.slow
def test_a_choice_takes_the_place_of_the_preset_that_the_document_states(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/new")
    for line in ("preset = 'huge_batch' # why\n", "preset = 5"):
        page.get_by_label("Job document").fill(f'name = "a"\n{line}')
        page.get_by_label("large_batch").check()
        expect_text(page, f'name = "a"\n{PRESET_LINE}')
        page.get_by_label("none").check()
        expect_text(page, 'name = "a"\n')


def test_a_file_is_opened_and_replaces_a_document_only_when_that_is_confirmed(
    page: Page, site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(PRESET_LINE)
    page.goto(f"{site.url}/new")
    with page.expect_file_chooser() as chooser:
        press(page, "Open a file…")
    chooser.value.set_files(file)
    expect_text(page, PRESET_LINE)
    expect(page.get_by_label("large_batch")).to_be_checked()
    file.write_text(DOCUMENT)
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.set_input_files("#file", file)
    expect_text(page, PRESET_LINE)
    page.once("dialog", lambda dialog: dialog.accept())
    page.set_input_files("#file", file)
    expect_text(page, DOCUMENT)
    page.reload()
    expect_text(page, DOCUMENT)


@pytest.mark.parametrize("encoding", ["utf-8-sig", pytest.param("utf-16", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_file_with_a_mark_of_its_encoding_is_opened_without_it(
    page: Page, site: Site, tmp_path: Path, encoding: str
) -> None:
    file = tmp_path / "job.toml"
    file.write_bytes(DOCUMENT.encode(encoding))
    page.goto(f"{site.url}/new")
    page.set_input_files("#file", file)
    expect_text(page, DOCUMENT)


@pytest.mark.slow
def test_a_file_that_is_not_utf_8_is_not_opened(page: Page, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_bytes("# caf\u00e9".encode("latin-1"))
    write(page, site, DOCUMENT)
    page.once("dialog", lambda dialog: dialog.accept())
    page.set_input_files("#file", file)
    expect(page.locator("#problem")).to_contain_text("Save job.toml as UTF-8")
    expect_text(page, DOCUMENT)


@pytest.mark.slow
def test_a_file_beyond_the_limit_is_not_opened(page: Page, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "rows.toml"
    file.write_text("x" * (2**20 + 1))
    write(page, site, DOCUMENT)
    page.set_input_files("#file", file)
    expect(page.locator("#problem")).to_contain_text("rows.toml has 1 MB, a document at most 1 MB")
    expect_text(page, DOCUMENT)


@pytest.mark.slow
def test_all_controls_are_reached_with_the_keyboard_in_their_order(page: Page, site: Site) -> None:
    write(page, site, DOCUMENT)
    page.get_by_role("button", name="Open a file…").focus()
    reached = []
    for _ in range(4):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.name"))
    assert reached == ["document", "preset", "check", "submit"]
