"""The page of all jobs: what it narrows the list to, how it pages, and what it does with many jobs at once."""

import random
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from service.client import JobDetails
from service.database import Database
from tests.patience import wait_until
from tests.service.dashboard.conftest import Site, make_context
from tests.service.seeding import add_jobs, make_job

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {"DLRM_NUM_CORES": "1", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
HOSTILE = "<img src=x onerror=alert(1)>"
NUM_OLD = 120
"""Jobs of the past, more than two pages."""


def submit(site: Site, name: str, **labels: str) -> str:
    """Submit a job for the only core, and return its id."""
    document = {
        "name": name,
        "labels": {"behaviour": "wait", **labels},
        "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
        "batch": {} if name == "feed-run" else {"global_size": 4096},
        "dense_optimizer": {"name": "lamb"},
        "resources": {"workers_per_node": 1, "memory": "1GiB"},
    }
    return site.client.submit(document).id


@pytest.fixture(scope="module")
def running(site: Site) -> JobDetails:
    """A job that runs, so that all others wait."""
    job_id = submit(site, "runs", team="ads", note=HOSTILE)
    return wait_until(lambda: job if (job := site.client.job(job_id)).state == "RUNNING" else None)


@pytest.fixture(scope="module")
def waiting(site: Site, running: JobDetails) -> list[str]:
    """Ids of three jobs that wait, oldest first."""
    assert running
    return [submit(site, "ads-run", team="ads"), submit(site, "feed-run", team="feed"), submit(site, "last-run")]


def find_row(page: Page, job_id: str) -> Locator:
    return page.locator("#jobs tbody tr", has_text=job_id)


def get_query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_a_row_says_why_its_job_waits_and_what_it_trains_with(
    page: Page, site: Site, running: JobDetails, waiting: list[str]
) -> None:
    page.goto(f"{site.url}/")
    row = find_row(page, waiting[0])
    expect(row.locator(".why")).to_have_text("Waits: needs 1 core, 0 free")
    expect(row.locator('[data-label="batch"]')).to_have_text("4,096")
    expect(row.locator('[data-label="optimizer"]')).to_have_text("lamb")
    expect(find_row(page, waiting[1]).locator('[data-label="batch"]')).to_have_text("–")  # noqa: RUF001
    expect(find_row(page, running.id).locator("progress")).to_have_js_property("value", 0.2)
    expect(find_row(page, running.id).locator(".label", has_text="note")).to_have_text(f"note: {HOSTILE}")
    assert page.locator("main img").count() == 0
    # One owner needs no column and no choice.
    expect(page.get_by_role("columnheader", name="Owner")).to_be_hidden()
    expect(page.locator("#facet-owners")).to_be_hidden()
    # Arrow keys move from job to job, and Enter opens one.
    row.get_by_role("link", name="ads-run").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.url}/jobs/{running.id}")


def test_filters_stand_in_the_address_and_can_each_be_removed(page: Page, site: Site, waiting: list[str]) -> None:
    page.goto(f"{site.url}/")
    find_row(page, waiting[0]).get_by_role("link", name="team: ads").click()
    expect(page).to_have_url(re.compile("label="))
    expect(find_row(page, waiting[1])).to_have_count(0)
    points = page.get_by_role("link", name="All of team: ads as points")
    expect(points).to_have_attribute("href", "/compare?label=team%3Aads")
    queued = page.locator("#facet-states a", has_text="queued")
    expect(queued.locator("small")).to_have_text("1")
    queued.click()
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    expect(page.locator("#total")).to_have_text("1 match")
    assert get_query(page) == {"state": ["QUEUED"], "label": ["team:ads"]}
    page.reload()
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    page.locator(".chip", has_text="team: ads").click()
    expect(find_row(page, waiting[1])).to_be_visible()
    page.go_back()
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Clear filters").click()
    expect(find_row(page, waiting[1])).to_be_visible()
    page.locator("main").press("/")
    page.keyboard.type("feed-r")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    expect(find_row(page, waiting[1])).to_be_visible()
    assert get_query(page) == {"q": ["feed-r"]}
    # What the stream sends is searched as well.
    ids = [submit(site, name) for name in ("other", "my-feed-rows")]
    expect(find_row(page, ids[1])).to_be_visible()
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    page.get_by_label("Search").fill("nothing-like-it")
    expect(page.locator("#nothing")).to_be_visible()
    expect(page.locator("#as-label")).to_be_hidden()
    # A label, written as in a chip, a document or a command.
    page.get_by_label("Search").fill("team = ads")
    page.locator("#as-label").click()
    expect(find_row(page, waiting[0])).to_be_visible()
    assert get_query(page) == {"label": ["team:ads"]}
    for job_id in ids:
        site.client.cancel(job_id)


def test_of_many_labels_a_row_shows_six_chosen_ones_first(page: Page, site: Site) -> None:
    job_id = submit(site, "n" * 63, **{f"label-{number}": "v" * 63 for number in range(20)})
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/?label=label-9:{'v' * 63}")
    labels = find_row(page, job_id).locator(".labels")
    expect(labels.locator(".label")).to_have_count(6)
    expect(labels.locator(".label").first).to_have_text(f"label-9: {'v' * 63}")
    expect(labels).to_contain_text("and 15 more")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    site.client.cancel(job_id)


def test_selected_jobs_are_labelled_and_cancelled_and_whoever_could_not_be_is_named(
    signed_in: BrowserContext, site: Site, running: JobDetails
) -> None:
    # The browser reports a refusal, which the fixture `page` takes for a fault.
    page = signed_in.new_page()
    ids = [submit(site, name, team="bulk") for name in ("one", "two", "three")]
    page.goto(f"{site.url}/")
    find_row(page, ids[2]).get_by_role("checkbox").click()
    find_row(page, ids[0]).get_by_role("checkbox").click(modifiers=["Shift"])
    expect(page.locator("#picked")).to_have_text("3 jobs selected")
    expect(page.get_by_role("link", name="Compare 3 jobs")).to_have_attribute(
        "href", f"/compare?ids={','.join(reversed(ids))}"
    )

    page.get_by_role("button", name="Label 3 jobs").click()
    page.get_by_role("dialog").get_by_label("Name").fill("sweep")
    page.get_by_role("dialog").get_by_label("Value").fill("lr")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#result-text")).to_have_text("Set sweep: lr on 3 jobs.")
    expect(find_row(page, ids[1]).get_by_role("link", name="sweep: lr")).to_be_visible()
    assert site.client.job(ids[0]).labels == {"behaviour": "wait", "team": "bulk", "sweep": "lr"}
    expect(page.locator("#bulk")).to_be_hidden()

    for job_id in ids:
        find_row(page, job_id).get_by_role("checkbox").click()
    page.get_by_role("button", name="Cancel 3 jobs").click()

    def cancel_first(route: Route) -> None:
        site.client.cancel(ids[1])
        route.continue_()

    page.route(re.compile(f"{ids[1]}/cancel"), cancel_first)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("one that waits is dropped from the queue")
    dialog.get_by_role("button", name="Cancel 3 jobs").click()
    expect(page.locator("#result-text")).to_have_text("Cancelled 2 of 3 jobs.")
    expect(page.locator("#result-faults")).to_contain_text("two is as it was")
    expect(find_row(page, ids[0]).locator(".state")).to_have_text("cancelled")
    assert site.client.job(running.id).state == "RUNNING"
    page.close()


@pytest.fixture(scope="module")
def old_ids(site: Site, running: JobDetails) -> list[str]:
    """Ids of many jobs of the past, newest first."""
    rows = random.Random(1)
    database = Database(f"sqlite:///{Path(running.run_directory).parents[1] / 'service.sqlite3'}")
    jobs = [make_job(rows, number) | {"state": "SUCCEEDED", "name": f"old-{number}"} for number in range(NUM_OLD)]
    with database.write() as session:
        add_jobs(session, jobs)
    database.close()
    return [job["id"] for job in reversed(jobs)]


@pytest.mark.slow
def test_older_pages_have_addresses_and_stay_as_they_are_while_new_jobs_come(
    page: Page, site: Site, old_ids: list[str], waiting: list[str]
) -> None:
    page.goto(f"{site.url}/?q=old")
    rows = page.locator("#jobs tbody tr")
    expect(rows).to_have_count(50)
    # Jobs of several owners have a column that says whose they are.
    expect(page.get_by_role("columnheader", name="Owner")).to_be_visible()
    expect(rows.first).to_contain_text(old_ids[0])
    page.get_by_role("link", name="Older").click()
    expect(rows.first).to_contain_text(old_ids[50])
    with page.expect_response(re.compile("/stream")):
        page.reload()
    expect(rows.first).to_contain_text(old_ids[50])
    new_id = submit(site, "old-by-name-alone")
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(20)
    expect(rows.last).to_contain_text(old_ids[-1])
    expect(page.get_by_role("link", name="Older")).to_be_hidden()
    expect(page.locator("#place")).to_have_text("Page 3")
    page.get_by_role("link", name="Newer").click()
    expect(rows.first).to_contain_text(old_ids[50])
    expect(find_row(page, new_id)).to_have_count(0)
    page.get_by_role("link", name="Newer").click()
    expect(rows.first).to_contain_text(new_id)
    page.go_back()
    expect(rows.first).to_contain_text(old_ids[50])
    site.client.cancel(new_id)
    assert waiting


@pytest.mark.slow
def test_a_view_keeps_its_filters_under_a_name_until_it_is_removed(page: Page, site: Site, waiting: list[str]) -> None:
    page.goto(f"{site.url}/?label=team%3Afeed")
    page.get_by_role("button", name="Save view").click()
    page.get_by_role("dialog").get_by_label("Name").fill("Feed <b>")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("link", name="Waiting").click()
    expect(find_row(page, waiting[0])).to_be_visible()
    page.reload()
    page.get_by_role("link", name="Feed <b>").click()
    expect(find_row(page, waiting[1])).to_be_visible()
    expect(find_row(page, waiting[0])).to_have_count(0)
    assert get_query(page) == {"label": ["team:feed"]}
    page.get_by_role("button", name="Remove the view Feed <b>").click()
    expect(page.get_by_role("link", name="Feed <b>")).to_have_count(0)


@pytest.mark.slow
def test_viewers_compare_jobs_and_change_none(browser: Browser, site: Site, waiting: list[str]) -> None:
    context = make_context(browser)
    page = context.new_page()
    link = site.client.create_login_link("viewer")
    page.goto(f"{site.url}/signin#token={link.token}")
    for job_id in waiting[:2]:
        find_row(page, job_id).get_by_role("checkbox").click()
    expect(page.get_by_role("link", name="Compare 2 jobs")).to_be_visible()
    for name in ("Cancel", "Label"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    context.close()
