"""Pages of which a request fails once, is answered late, or is never answered: in the end they are right."""

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from service.client import Job
from tests.patience import wait_until
from tests.service.dashboard.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {"DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2", "DLRM_GRACE_PERIOD_SECONDS": "5"}
DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
    "max_restarts": 0,
}
GIVE_UP_SOON = "const limit = AbortSignal.timeout; AbortSignal.timeout = (wait) => limit.call(AbortSignal, wait / 100);"
"""Script that has pages wait for answers a hundredth of the time."""
NOTE_MESSAGES = """
  const Source = EventSource;
  window.EventSource = class extends Source {
    constructor(path) {
      super(path);
      this.addEventListener("job", ({ data }) => (window.lastMessage = data));
    }
  };
"""
"""Script that notes what a stream has said last of a job."""
LAST_OF_MANY = 60


def submit(site: Site, behaviour: str, state: str) -> Job:
    """Submit a job, and wait until it is in `state`."""
    job = site.client.submit({**DOCUMENT, "labels": {"behaviour": behaviour}})
    wait_until(lambda: site.client.job(job.id).state == state)
    return job


def fail_once(page: Page, *patterns: str) -> None:
    """Let the first request of each pattern fail."""

    def refuse(route: Route) -> None:
        route.fulfill(status=503, json={"title": "Busy", "detail": "busy for now"})

    for pattern in patterns:
        page.route(re.compile(pattern), refuse, times=1)


def test_the_list_has_all_its_parts_and_actions_after_requests_that_failed_once(failing_page: Page, site: Site) -> None:
    page, job = failing_page, submit(site, "wait", "RUNNING")
    fail_once(page, "/v1/me$", "/v1/facets", "/v1/capacity$")
    page.goto(site.url)
    expect(page.locator("#facet-states")).to_contain_text("running")
    expect(page.locator("#capacity")).to_contain_text("of 2 cores free")
    page.get_by_label(f"Select {job.name}").check()
    expect(page.locator("#cancel-jobs")).to_be_visible()
    expect(page.locator("#trouble")).to_be_hidden()
    site.client.cancel(job.id)


@pytest.mark.slow
def test_a_sign_out_that_fails_is_said(failing_page: Page, site: Site) -> None:
    page = failing_page
    page.goto(site.url)
    expect(page.locator("#me")).not_to_be_empty()
    page.route("**/v1/session", lambda route: route.abort())
    page.click("#signout")
    expect(page.locator("#trouble")).to_contain_text("you are still signed in")


def test_the_page_of_a_failed_job_is_whole_after_requests_that_failed_once(failing_page: Page, site: Site) -> None:
    page, job = failing_page, submit(site, "crash", "FAILED")
    fail_once(page, "/v1/me$", r"/events\?.*name=", r"/logs\?", "/attempts$")
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator(".last-lines")).to_have_text("a wheel came off")
    expect(page.locator(".timeline .line")).to_contain_text("Attempt 1")
    expect(page.locator("#restart")).to_be_visible()
    expect(page.locator("#trouble")).to_be_hidden()


@pytest.mark.slow
def test_another_log_opens_though_its_first_request_fails(failing_page: Page, site: Site) -> None:
    page, job = failing_page, submit(site, "crash", "FAILED")
    page.goto(f"{site.url}/jobs/{job.id}/logs")
    expect(page.locator("#log")).to_have_text("rank 0 says grüezi")
    fail_once(page, r"/logs\?")
    page.select_option("#rank", "launch 0")
    expect(page.locator("#log")).to_contain_text("a wheel came off")
    expect(page.locator("#trouble")).to_be_hidden()


@pytest.mark.slow
def test_a_read_that_is_never_answered_is_given_up_and_repeated(failing_page: Page, site: Site) -> None:
    page, job = failing_page, submit(site, "crash", "FAILED")
    page.add_init_script(GIVE_UP_SOON)
    page.route(re.compile(f"/v1/jobs/{job.id}$"), lambda _: None, times=1)
    page.goto(f"{site.url}/jobs/{job.id}/events")
    expect(page.locator("#trouble")).to_have_text("The service does not answer; trying again.")
    expect(page.locator("#state")).to_have_text("failed")
    expect(page.locator("#trouble")).to_be_hidden()


@pytest.mark.slow
def test_a_message_is_not_undone_by_an_older_answer(page: Page, site: Site) -> None:
    job = submit(site, "wait", "RUNNING")
    page.add_init_script(NOTE_MESSAGES)
    with page.expect_response(re.compile("/stream")):
        page.goto(f"{site.url}/jobs/{job.id}/events")
    expect(page.locator("#state")).to_have_text("running")
    page.wait_for_function("() => window.lastMessage")

    def answer_late(route: Route) -> None:
        answer = route.fetch()
        page.wait_for_function("() => window.lastMessage.includes('PAUSED')")
        route.fulfill(response=answer)

    page.route(re.compile(f"/v1/jobs/{job.id}$"), answer_late, times=1)
    page.click("#pause")
    expect(page.locator("#state")).to_have_text("paused")
    site.client.cancel(job.id)


@pytest.mark.slow
def test_older_rows_of_the_audit_log_come_once_and_only_for_the_same_filters(page: Page, site: Site) -> None:
    for name in ("one", "two"):
        site.client.revoke_key(site.client.create_key(name, "viewer").id)
    held: list[Route] = []

    def shorten(route: Route) -> None:
        route.continue_(url=route.request.url.replace("limit=100", "limit=2"))

    page.route(re.compile(r"/v1/audit\?"), shorten)
    page.goto(f"{site.url}/audit")
    rows = page.locator("#events tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Older").dblclick()
    expect(rows).to_have_count(4)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) == len(set(lines)) == 5

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile("cursor="), hold, times=1)
    page.get_by_role("button", name="Older").click()
    page.get_by_label("Action").select_option("key_revoked")
    expect(rows).to_contain_text(["revoked key two", "revoked key one"])
    with page.expect_response(re.compile("cursor=")):
        shorten(held[0])
    # Whatever the page made of that answer is done once the next one is there.
    page.evaluate("() => fetch('/v1/me')")
    assert rows.count() == 2
    expect(page.get_by_role("button", name="Older")).to_be_hidden()


def add_attempts(run_directory: Path) -> None:
    """Add attempts 2 to LAST_OF_MANY, of which each runs for as many seconds as its number says."""
    with closing(sqlite3.connect(run_directory.parents[1] / "service.sqlite3")) as connection, connection:
        columns: list[str] = [row[1] for row in connection.execute("PRAGMA table_info(attempts)")]
        made = {"id": "'att_' || ?", "number": "?"}
        copied = ", ".join(made.get(column, column) for column in columns)
        for number in range(2, LAST_OF_MANY + 1):
            query = f"INSERT INTO attempts SELECT {copied} FROM attempts WHERE job_id = ? AND number = 1"
            connection.execute(query, (number, number, run_directory.name))
            start = datetime(2027, 1, 1, tzinfo=UTC) + timedelta(minutes=2 * number)
            end = start + timedelta(seconds=number)
            restart = [(end, "RECOVERING", number), (end, "QUEUED", None)]
            ends = restart if number < LAST_OF_MANY else [(end, "FAILED", number)]
            changes = [(start, "STARTING", number), (start, "RUNNING", number), *ends]
            connection.executemany(
                "INSERT INTO events (job_id, attempt, time, actor, kind, to_state, message, details)"
                " VALUES (?, ?, ?, 'reconciler', 'state', ?, '', '{}')",
                [(run_directory.name, attempt, f"{time:%Y-%m-%d %H:%M:%S}", state) for time, state, attempt in changes],
            )


@pytest.mark.slow
def test_the_timeline_numbers_attempts_though_the_events_of_the_first_ones_are_not_read(page: Page, site: Site) -> None:
    job = submit(site, "crash", "FAILED")
    add_attempts(Path(site.client.job(job.id).run_directory or ""))
    page.goto(f"{site.url}/jobs/{job.id}")
    lines = page.locator(".timeline .line")
    expect(lines.last).to_contain_text(f"Attempt {LAST_OF_MANY}")
    expect(lines.last.locator("[data-state=RUNNING]")).to_have_attribute("title", re.compile("running for 1 min 00 s"))
