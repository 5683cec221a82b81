"""Tabs of a job with its logs, its events and its document."""

import ast
import json
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from service.client import Job
from tests.patience import wait_until
from tests.service.dashboard.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {
    "DLRM_NUM_CORES": "2",
    "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2",
    "DLRM_RESTART_DELAY_SECONDS": "3000",
    "DLRM_MAX_RESTART_DELAY_SECONDS": "3000",
}
DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}
NUM_LINES = 60_000
ADD_EVENT = (
    "INSERT INTO events (job_id, attempt, time, actor, kind, message, name, rank, details)"
    " VALUES (?, 1, ?, 'trainer', 'report', ?, ?, 0, ?)"
)


def start_job(site: Site, behaviour: str = "wait", state: str = "RUNNING", **changes: Any) -> tuple[Job, Path]:
    """Submit a job, wait until it is in `state`, and return it with its run directory."""
    job = site.client.submit({**DOCUMENT, "labels": {"behaviour": behaviour}, **changes})
    wait_until(lambda: site.client.job(job.id).state == state)
    return job, Path(site.client.job(job.id).run_directory or "")


def add_events(run_directory: Path, *rows: tuple[object, ...]) -> None:
    """Add events of the first attempt to the database of the service."""
    with closing(sqlite3.connect(run_directory.parents[1] / "service.sqlite3")) as connection, connection:
        connection.executemany(ADD_EVENT, [(run_directory.name, *row) for row in rows])


def scroll_up(page: Page) -> None:
    page.locator("#log").evaluate("log => { log.scrollTop = 0; }")


def test_a_long_log_is_followed_scrolled_back_and_searched(page: Page, site: Site) -> None:
    job, run_directory = start_job(site)
    path = run_directory / "attempt-1/logs/rank-0.log"
    # The trainer has begun its log.
    wait_until(lambda: path.exists() and path.stat().st_size)
    with path.open("a") as log:
        log.writelines(f"line {number} of the log\n" for number in range(NUM_LINES))
    page.goto(f"{site.url}/jobs/{job.id}/logs")
    lines = page.locator(".log-line")
    expect(lines.last).to_have_text(f"line {NUM_LINES - 1} of the log")
    with path.open("a") as log:
        log.write("ValueError: it grew\nstandard error 0.01")
    # A last line without its end, too.
    expect(lines.last).to_have_text("standard error 0.01")
    expect(page.locator('[data-level="error"]')).to_have_text("ValueError: it grew")

    first = lines.first.inner_text()
    scroll_up(page)
    expect(lines.first).not_to_have_text(first)
    expect(page.get_by_role("button", name="Follow")).to_be_visible()
    numbers = [int(text.split()[1]) for text in lines.all_inner_texts() if text.startswith("line ")]
    assert numbers == list(range(numbers[0], NUM_LINES))

    page.fill("#wanted", "LINE 777")
    page.press("#wanted", "Enter")
    expect(page.locator("#num-matches")).to_have_text("1 of 11 lines")
    expect(page.locator("[data-found]")).to_have_text("line 777 of the log")
    page.press("#wanted", "Enter")
    expect(page.locator("[data-found]")).to_have_text("line 7770 of the log")
    page.locator("#matches button").last.click()
    expect(page.locator("[data-found]")).to_have_text("line 7779 of the log")
    page.press("#wanted", "Escape")
    expect(page.locator("#matches")).to_be_hidden()
    page.get_by_role("button", name="Follow").click()
    expect(lines.last).to_have_text("standard error 0.01")
    expect(page.get_by_role("button", name="Follow")).to_be_hidden()
    assert lines.count() < NUM_LINES
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).stat().st_size == path.stat().st_size
    site.client.cancel(job.id)


@pytest.mark.slow
def test_lines_that_are_no_utf_8_are_each_shown_once(page: Page, site: Site) -> None:
    job, run_directory = start_job(site)
    path = run_directory / "attempt-1/logs/rank-0.log"
    wait_until(lambda: path.exists() and path.stat().st_size)
    names = [f"caf\u00e9 {number}" for number in range(NUM_LINES // 6)]
    with path.open("a", encoding="latin-1") as log:
        log.writelines(f"{name}\n" for name in names)
        log.write("caf\u00e9 un")
    page.goto(f"{site.url}/jobs/{job.id}/logs")
    lines = page.locator(".log-line")
    expect(lines.last).to_have_text("caf\ufffd un")
    with path.open("a", encoding="latin-1") as log:
        log.write("finished\ncaf\u00e9 last\n")
    expect(lines.last).to_have_text("caf\ufffd last")
    while lines.first.inner_text() != "rank 0 says gr\u00fcezi":
        before = lines.count()
        scroll_up(page)
        expect(lines).not_to_have_count(before)
    shown = [name.replace("\u00e9", "\ufffd") for name in [*names, "caf\u00e9 unfinished", "caf\u00e9 last"]]
    assert lines.all_inner_texts()[1:] == shown
    page.fill("#wanted", "4242")
    page.press("#wanted", "Enter")
    expect(page.locator("[data-found]")).to_have_text("caf\ufffd 4242")
    site.client.cancel(job.id)


@pytest.mark.slow
def test_the_address_keeps_the_process_and_the_attempt_and_an_empty_log_says_why(page: Page, site: Site) -> None:
    job, run_directory = start_job(site, "lose_two_steps_once", "RECOVERING")
    with closing(sqlite3.connect(run_directory.parents[1] / "service.sqlite3")) as connection, connection:
        connection.execute("UPDATE jobs SET restarts_at = '2026-01-01 00:00:00' WHERE id = ?", (job.id,))
    page.goto(f"{site.url}/jobs/{job.id}/logs")
    expect(page.locator("#attempt option:checked")).to_have_text("newest (2)")
    second = run_directory / "attempt-2/logs/rank-0.log"
    wait_until(lambda: second.exists() and second.stat().st_size)
    with second.open("a") as log:
        log.write("of the second attempt\n")
    expect(page.locator("#log")).to_contain_text("of the second attempt")
    page.select_option("#attempt", "1")
    expect(page.locator(".log-line")).to_have_text(["rank 0 says grüezi"])
    page.select_option("#rank", "launch 0")
    assert page.url.endswith("?rank=launch&attempt=1")
    page.reload()
    expect(page.locator("#rank option:checked")).to_have_text("launch process")
    expect(page.locator("#attempt option:checked")).to_have_text("1")
    (run_directory / "go-on").touch()
    expect(page.locator("#state")).to_have_text("succeeded")

    blocking, _ = start_job(site)
    waiting, _ = start_job(site, state="QUEUED", resources={"workers_per_node": 2, "memory": "1GiB"})
    page.goto(f"{site.url}/jobs/{waiting.id}/logs")
    expect(page.locator("#log-hint")).to_contain_text("The job waits to be started")
    for each in (waiting, blocking):
        site.client.cancel(each.id)


@pytest.mark.slow
def test_events_are_newest_first_by_attempt_and_filtered_with_details_and_older_pages(page: Page, site: Site) -> None:
    job, run_directory = start_job(site)
    saved = [(f"2026-01-01 00:00:{step:02}", f"step {step}", "checkpoint_saved", "{}") for step in range(3)]
    skipped = [
        (f"2027-01-01 0{n // 3600}:{n // 60 % 60:02}:{n % 60:02}", f"<img onerror=x> {n}", "step_dropped", "{}")
        for n in range(500)
    ]
    plan = ("2028-01-01 00:00:00", "one table", "plan", '{"tables": {"C1": {"ranks": [0, 1], "kind": null}}, "x": 1.5}')
    add_events(run_directory, *saved, *skipped, plan)
    page.goto(f"{site.url}/jobs/{job.id}/events")
    items = page.locator("#events li")
    expect(page.locator("#events h3")).to_have_text(["Attempt 1"])
    expect(items).to_have_count(200)
    expect(items.first).to_contain_text("plan · by rank 0one table")
    items.first.get_by_text("Details").click()
    assert items.first.locator("dt, dd").all_inner_texts() == [
        *("tables / C1 / ranks", "0, 1"),
        *("tables / C1 / kind", "none"),
        *("x", "1.5"),
    ]
    while page.locator("#older").is_visible():
        before = items.count()
        page.click("#older")
        expect(items).not_to_have_count(before)
    # What was open stays open.
    expect(items.first.locator("dl")).to_be_visible()
    checkpoints = page.locator('#events li[data-what="checkpoint_saved"]')
    expect(checkpoints).to_have_count(1)
    expect(checkpoints).to_contain_text("the last of 3step 2")
    page.check("#all-events")
    expect(checkpoints).to_have_count(3)
    page.get_by_role("button", name="warning 500").click()
    expect(items).to_have_count(500)
    page.fill("#wanted", "> 499")
    expect(items).to_have_count(1)
    page.fill("#wanted", "nothing like it")
    expect(page.locator("#no-events")).to_have_text("No event matches the filter.")
    site.client.cancel(job.id)


@pytest.mark.slow
def test_the_document_differs_from_the_defaults_and_can_be_run_again(page: Page, site: Site) -> None:
    changes = {
        "dense_optimizer": {"name": "lamb", "schedule": {"scaling": "legw"}},
        "variance_reduction": {},
        "moments": {"every": 1},
        "run": {"epochs": 2, "patience": None},
        "table_optimizer": {"learning_rate": 0.5},
        "preset": "large_batch",
    }
    job, _ = start_job(site, "succeed", "SUCCEEDED", name="again", **changes)
    spec = site.client.job(job.id).spec
    page.goto(f"{site.url}/jobs/{job.id}/document")
    row = page.locator("#differences tr", has_text="table_optimizer.learning_rate")
    expect(row).to_have_count(1)
    assert row.locator("th, td").all_inner_texts()[1:3] == ["0.5", "0.12"]
    expect(page.locator("#differences tbody")).not_to_contain_text("max_restarts")
    shown = page.locator("#document").inner_text()
    submitted = page.locator("#again").inner_text().split("'END_OF_JOB'\n")[1].split("END_OF_JOB")[0]
    page.check("input[value=json]")
    assert json.loads(page.locator("#document").inner_text()) == spec
    page.check("input[value=python]")
    python = page.locator("#again").inner_text()
    literal = python[python.index("{") : python.index("\nwith Client")]
    for document in (tomllib.loads(shown), tomllib.loads(submitted), ast.literal_eval(literal)):
        again = site.client.submit(document)
        assert site.client.job(again.id).spec == spec
        site.client.cancel(again.id)
    page.get_by_role("button", name="Copy").first.click()
    expect(page.locator("#copy-again")).to_have_text("Copied")
    expect(page.get_by_role("link", name="Clone and edit")).to_have_attribute("href", f"/new?from={job.id}")
