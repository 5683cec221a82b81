"""The page of a new job in a real browser: its form and its text, a check while one types, and the submission."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.patience import wait_until
from tests.service.dashboard.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {"DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
DOCUMENT = """\
name = "typed"  # kept
max_restarts = 0

[data]
format = "synthetic"
synthetic = { num_rows = 1000 }

[batch]
global_size = 64  # why

[resources]
memory = "1GiB"
"""
MAX_PAGE_BYTES = 300_000
COUNT_BYTES = "performance.getEntries().reduce((sum, entry) => sum + (entry.encodedBodySize ?? 0), 0)"

ROUND_TRIPS: list[tuple[str, list[Any], Any, str]] = [
    ("a = 1 # c\n# d\n", ["a"], 2, "a = 2 # c\n# d\n"),
    ("[run] # r\nepochs = 1\n", ["run", "seed"], 7, "[run] # r\nepochs = 1\nseed = 7\n"),
    ("batch.global_size = 1 # b\n", ["batch", "global_size"], "auto", 'batch.global_size = "auto" # b\n'),
    ("['batch']\n\"global_size\" = 0x10\n", ["batch", "global_size"], 17, "['batch']\n\"global_size\" = 0x11\n"),
    ("s = { a = 1, b = 2 }\n", ["s", "a"], None, "s = { b = 2 }\n"),
    ("t = [\n  'a', # x\n  'b',\n]\n", ["t"], ["a", "c"], "t = [\n  'a', # x\n  'c',\n]\n"),
    ("[[g]]\np = 1\n\n[[g]]\np = 2\n", ["g", 1, "p"], 3, "[[g]]\np = 1\n\n[[g]]\np = 3\n"),
    ("", ["run", "warm_start", "from"], "job_1", '[run]\nwarm_start = { from = "job_1" }\n'),
    ("[batch]\nsize = 1\n\n[run]\nseed = 2\n", ["batch", "size"], None, "[run]\nseed = 2\n"),
    ("a = 1\r\nb = 2\r\n", ["b"], 3, "a = 1\r\nb = 3\r\n"),
]
"""Texts, each with the path of a value, its new value (None leaves it out), and the text afterwards."""


def find_text(page: Page) -> Locator:
    return page.get_by_label("Job document")


def write(page: Page, site: Site, text: str) -> None:
    """Open the page of a new job, and write a document."""
    page.goto(f"{site.url}/new")
    expect(page.get_by_label("Batch size")).to_be_enabled()
    find_text(page).fill(text)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def expect_text(page: Page, text: str) -> None:
    expect(find_text(page)).to_have_value(text)


def find_field(page: Page, path: str) -> Locator:
    """Find the row of a field among all fields, with its section open."""
    page.locator("#all details").evaluate_all("all => all.forEach((details) => (details.open = true))")
    return page.locator(f'#all [data-field="{path}"]')


def list_keys(page: Page) -> list[str]:
    """Return the list to which every submission of the page from now on adds its idempotency key."""
    keys: list[str] = []

    def note(request: Request) -> None:
        if request.method == "POST" and request.url.endswith("/v1/jobs"):
            keys.append(request.headers["idempotency-key"])

    page.on("request", note)
    return keys


def test_form_and_text_follow_each_other_and_the_submission_leads_to_the_job(page: Page, site: Site) -> None:
    write(page, site, DOCUMENT)
    size = page.get_by_label("Batch size")
    expect(size).to_have_value("64")
    size.fill("128")
    expect_text(page, DOCUMENT.replace("= 64", "= 128"))
    page.get_by_label("Dense optimizer", exact=True).select_option(label="lamb")
    expect_text(page, DOCUMENT.replace("= 64", "= 128") + '\n[dense_optimizer]\nname = "lamb"\n')
    # The default of LAMB, which the service knows, and not of the schema.
    expect(find_field(page, "dense_optimizer.eps").locator("input")).to_have_attribute("placeholder", "1e-6")
    page.get_by_label("Dense optimizer", exact=True).select_option("")
    expect_text(page, DOCUMENT.replace("= 64", "= 128"))
    find_text(page).fill(DOCUMENT.replace("= 64", "64"))
    expect(size).to_be_disabled()
    expect(page.locator("#frozen")).to_contain_text("Line 9 of the text cannot be read")
    expect(size).to_have_value("128")
    find_text(page).fill(DOCUMENT)
    expect(page.get_by_label("Batch size")).to_be_enabled()
    expect(size).to_have_value("64")
    expect(page.locator("#finding-state")).to_have_text("Nothing is at fault.")
    assert page.evaluate(COUNT_BYTES) < MAX_PAGE_BYTES
    press(page, "Submit")
    page.wait_for_url(re.compile("/jobs/job_"))
    assert site.client.job(page.url.rpartition("/")[2]).name == "typed"


def test_single_values_change_and_the_rest_of_the_text_stays(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/new")
    script = page.locator("script[type=module]").get_attribute("src") or ""
    changed = page.evaluate(
        """async ([path, cases]) => {
            const { changeText } = await import(path);
            return cases.map(([text, path, value]) => changeText(text, path, value ?? undefined));
        }""",
        [script.replace("new.js", "text.js"), [case[:3] for case in ROUND_TRIPS]],
    )
    assert changed == [wanted for *_, wanted in ROUND_TRIPS]
    assert all(tomllib.loads(text) is not None for text in changed)


@pytest.mark.slow
def test_every_kind_of_control_writes_what_the_service_takes(page: Page, site: Site) -> None:
    write(page, site, DOCUMENT)
    for path, text in {
        "labels": "team = ads\nrun = 3",
        "data.eval_fraction": "0.2",
        "model.top_mlp": "64, 1",
        "model.bottom_mlp": "32, 16",
        "run.patience": "3",
        "run.checkpoint_every_seconds": "5",
    }.items():
        find_field(page, path).locator("input, textarea").fill(text)
    find_field(page, "run.checkpoint_every_seconds").get_by_label("unit").select_option("min")
    find_field(page, "resources.memory").get_by_label("unit").select_option("MiB")
    find_field(page, "resources.memory").locator("input").fill("900")
    find_field(page, "run.keep_scores").locator("input").check()
    find_field(page, "precision").locator("select").select_option(label="bf16")
    find_field(page, "variance_reduction").get_by_role("switch").check()
    find_field(page, "averaging").get_by_role("switch").check()
    find_field(page, "averaging.half_life_fraction").locator("input").fill("0.1")
    press(page, "Add to groups")
    find_field(page, "dense_optimizer.groups.0.parameters").locator("input").fill("bottom*")
    expect(page.locator("#finding-state")).to_have_text("Nothing is at fault.")
    document = tomllib.loads(find_text(page).input_value())
    assert document == tomllib.loads(DOCUMENT) | {
        "labels": {"team": "ads", "run": "3"},
        "precision": "bf16",
        "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}, "eval_fraction": 0.2},
        "model": {"top_mlp": [64, 1], "bottom_mlp": [32, 16]},
        "run": {"patience": 3, "checkpoint_every_seconds": 300, "keep_scores": True},
        "resources": {"memory": "900MiB"},
        "variance_reduction": {},
        "averaging": {"half_life_fraction": 0.1},
        "dense_optimizer": {"groups": [{"parameters": "bottom*"}]},
    }
    find_field(page, "moments").get_by_role("switch").uncheck()
    expect(find_field(page, "variance_reduction")).to_be_visible()
    # Variance reduction needs moments.
    expect(page.locator("#finding-list")).to_contain_text("moments is null, but variance_reduction needs moments")
    find_field(page, "variance_reduction").get_by_role("switch").uncheck()
    expect(page.locator("#finding-state")).to_have_text("Nothing is at fault.")
    press(page, "Remove groups 1")
    find_field(page, "averaging").get_by_role("switch").uncheck()
    written = tomllib.loads(find_text(page).input_value())
    assert written["moments"] is False
    assert {"variance_reduction", "averaging", "dense_optimizer"}.isdisjoint(written)


@pytest.mark.slow
def test_errors_stand_at_their_lines_and_fields_and_help_follows_the_cursor(page: Page, site: Site) -> None:
    write(page, site, DOCUMENT.replace("= 64", "= 63").replace('"1GiB"', '"9000GiB"'))
    mark = page.get_by_role("button", name="Line 9: batch.global_size: 63 is not divisible by 2 ranks")
    expect(mark).to_be_visible()
    row = page.locator("#first .field", has_text="Batch size")
    expect(row.locator(".fault")).to_have_text("63 is not divisible by 2 ranks (valid: 62 or 64)")
    expect(row.locator("input")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#all summary", has_text="Batch")).to_contain_text("1 at fault")
    page.locator("#finding-list").get_by_role("button", name="batch.global_size").click()
    assert page.evaluate("getSelection().toString()") == "global_size = 63  # why"
    expect(page.locator("#bubble")).to_contain_text("63 is not divisible")
    expect(page.locator("#help-title")).to_have_text("batch.global_size")
    expect(page.locator("#help-facts")).to_contain_text("63, in line 9")
    row.locator("input").fill("64")
    # Only now does the service look for the memory.
    expect(page.locator("#finding-list")).to_contain_text("asks for 9,000.00 GiB")
    expect(mark).to_be_hidden()
    page.get_by_label("Memory on each machine").focus()
    expect(page.locator("#help-title")).to_have_text("resources.memory")
    expect(page.locator("#help-facts")).to_contain_text("at least 256 MiB")
    page.get_by_label("Filter the fields").fill("warm_start")
    expect(page.locator("#all .field").filter(visible=True)).to_have_count(1)


@pytest.mark.slow
def test_starting_points_fill_the_text_and_what_was_typed_can_be_brought_back(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/new")
    page.get_by_role("button", name="Quick start").click()
    expect(page.get_by_label("Name of the job")).to_have_value("first")
    page.get_by_role("button", name="Large batch").click()
    expect(page.locator("#first").get_by_label("Preset")).to_have_value("0")
    page.get_by_label("Name of the job").fill("mine")
    page.get_by_role("button", name="Own file").click()
    expect(page.get_by_label("Label column")).to_have_value("clicked")
    expect(page.locator("#finding-list")).to_contain_text("matches no file")
    press(page, "Bring it back")
    expect(page.get_by_label("Name of the job")).to_have_value("mine")
    page.goto(f"{site.url}/new")
    expect(page.locator("#unsent")).to_contain_text("a draft that was not submitted")
    expect(page.get_by_label("Name of the job")).to_have_value("mine")
    press(page, "Start with an empty one")
    expect(find_text(page)).to_have_value("")


@pytest.mark.slow
def test_the_document_of_a_job_begins_a_new_one_and_its_model_too(page: Page, site: Site) -> None:
    document = {
        **tomllib.loads(DOCUMENT),
        "name": "earlier",
        "preset": "large_batch",
        "labels": {"behaviour": "succeed"},
        "dense_optimizer": {"name": "lamb", "schedule": {"scaling": "legw"}},
        "variance_reduction": {},
        "moments": {"every": 2},
        "run": {"patience": False},
    }
    job = site.client.submit(document)
    wait_until(lambda: site.client.job(job.id).state == "SUCCEEDED")
    page.goto(f"{site.url}/new?from={job.id}")
    expect(page.locator("#origin")).to_contain_text("This is the document of the job earlier")
    assert tomllib.loads(find_text(page).input_value()) == document
    expect(page.locator("#finding-state")).to_have_text("Nothing is at fault.")
    page.get_by_label("Name of the job").fill("later")
    page.reload()
    expect(page.get_by_label("Name of the job")).to_have_value("later")
    page.get_by_role("button", name="Retraining").click()
    page.get_by_label("Job whose model to start from").select_option(job.id)
    press(page, "Use it")
    expect(page.locator("#origin")).to_contain_text("starts with the weights of that job")
    assert tomllib.loads(find_text(page).input_value()) == {
        **document,
        "run": {"patience": False, "warm_start": {"from": job.id}},
    }


@pytest.mark.slow
def test_a_submission_whose_answer_is_lost_makes_one_job_and_a_changed_document_another(
    failing_page: Page, site: Site
) -> None:
    page, keys = failing_page, list_keys(failing_page)
    num_before = len(list(site.client.jobs()))
    write(page, site, DOCUMENT)
    page.route("**/v1/jobs", lambda route: (route.fetch(), route.abort()))
    press(page, "Submit")
    expect(page.locator("#problem")).to_contain_text("does not answer")
    page.unroute("**/v1/jobs")
    page.reload()
    expect_text(page, DOCUMENT)
    press(page, "Submit")
    page.wait_for_url(re.compile("/jobs/job_"))
    assert keys[0] == keys[1]
    assert len(list(site.client.jobs())) == num_before + 1
    for text in (f"nmae = 'x'\n{DOCUMENT}", DOCUMENT):
        write(page, site, text)
        press(page, "Submit")
        if text == DOCUMENT:
            page.wait_for_url(re.compile("/jobs/job_"))
        else:
            expect(page.locator("#problem")).to_contain_text("unknown field; did you mean 'name'?")
            expect_text(page, text)
    assert len(set(keys)) == 3


@pytest.mark.slow
def test_while_a_request_runs_its_button_says_so_and_then_why_it_failed(failing_page: Page, site: Site) -> None:
    page = failing_page
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile("/v1/(jobs|plans)$"), hold)
    write(page, site, DOCUMENT)
    page.get_by_role("button", name="Check", exact=True).press("Enter")
    expect(page.get_by_role("button", name="Checking…")).to_be_disabled()
    expect(page.locator("#submit")).to_be_disabled()
    find_text(page).press("Control+Enter")
    page.get_by_role("button", name="Checking…").focus()
    held[0].fulfill(status=503, json={"title": "Too many requests at once", "detail": "try again soon"})
    expect(page.locator("#problem")).to_contain_text("try again soon")
    expect(page.get_by_role("button", name="Check", exact=True)).to_be_enabled()
    assert len(held) == 1
    find_text(page).fill(" \n")
    press(page, "Submit")
    expect(page.locator("#problem")).to_contain_text("The document is empty")


@pytest.mark.slow
def test_the_text_outlives_a_sign_in_and_a_viewer_is_told_that_its_key_cannot_submit(
    failing_page: Page, site: Site
) -> None:
    page, link = failing_page, site.client.create_login_link("viewer", owner="guest")
    write(page, site, DOCUMENT)
    page.context.clear_cookies()
    # Its next request, whichever, finds no session.
    page.wait_for_url(f"{site.url}/signin")
    page.get_by_label("API key or sign-in link").fill(site.client.create_key("typist", "submitter").key or "")
    press(page, "Sign in")
    page.wait_for_url(f"{site.url}/new")
    expect_text(page, DOCUMENT)
    page.context.clear_cookies()
    page.goto(f"{site.url}/signin#token={link.token}")
    page.wait_for_url(f"{site.url}/")
    page.goto(f"{site.url}/new")
    expect(page.locator("#viewer")).to_contain_text("Your key may look at jobs, not submit them")
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    expect_text(page, DOCUMENT)


@pytest.mark.slow
def test_files_are_opened_as_what_their_encoding_says(page: Page, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    page.goto(f"{site.url}/new")
    expect(page.get_by_label("Batch size")).to_be_enabled()
    for encoding in ("utf-8-sig", "utf-16"):
        file.write_bytes(DOCUMENT.encode(encoding))
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="A document").click()
        chooser.value.set_files(file)
        expect_text(page, DOCUMENT)
        find_text(page).fill("")
    file.write_bytes("# caf\u00e9".encode("latin-1"))
    page.set_input_files("#file", file)
    expect(page.locator("#problem")).to_contain_text("Save job.toml as UTF-8")
    file.write_text("x" * (2**20 + 1))
    page.set_input_files("#file", file)
    expect(page.locator("#problem")).to_contain_text("job.toml has 1 MB, a document at most 1 MB")
    expect_text(page, "")


@pytest.mark.slow
def test_all_parts_are_reached_with_the_keyboard_in_their_order(page: Page, site: Site) -> None:
    write(page, site, DOCUMENT.replace("= 64", "= 63"))
    expect(page.locator(".mark")).to_be_visible()
    page.get_by_role("button", name="A document").focus()
    reached: list[str] = []
    while "submit" not in reached and len(reached) < 60:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    wanted = ["mark", "document", "link", "help", "field-0", "filter", "check", "submit"]
    assert [name for name in reached if name in wanted] == wanted
