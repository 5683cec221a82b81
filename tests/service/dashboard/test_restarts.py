"""The page of a job that is restarted, with a trainer that loses two steps once."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.service.dashboard.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {
    "DLRM_NUM_CORES": "2",
    "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2",
    "DLRM_RESTART_DELAY_SECONDS": "3000",
    "DLRM_MAX_RESTART_DELAY_SECONDS": "3000",
}
DOCUMENT = {
    "labels": {"behaviour": "lose_two_steps_once"},
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}


def end_wait(run_directory: Path) -> None:
    """End a job's wait for its next attempt, in the service's database."""
    with closing(sqlite3.connect(run_directory.parents[1] / "service.sqlite3")) as connection, connection:
        connection.execute("UPDATE jobs SET restarts_at = '2026-01-01 00:00:00' WHERE id = ?", [run_directory.name])


def report_checkpoints(run_directory: Path) -> None:
    """Add three checkpoint events, as if a rank had reported them long before the job was created."""
    with closing(sqlite3.connect(run_directory.parents[1] / "service.sqlite3")) as connection, connection:
        connection.executemany(
            "INSERT INTO events (job_id, attempt, time, actor, kind, message, name, rank, details)"
            " VALUES (?, 1, ?, 'trainer', 'report', ?, 'checkpoint_saved', 0, '{}')",
            [(run_directory.name, f"2026-01-01 00:00:0{step}", f"step {step}") for step in (1, 2, 3)],
        )


@pytest.mark.slow
def test_events_are_by_time_with_checkpoints_in_a_row_as_one_and_no_phase_is_shown_between_attempts(
    page: Page, site: Site
) -> None:
    job = site.client.submit(DOCUMENT)
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#state")).to_have_text("recovering")
    progress = site.client.job(job.id).progress
    assert (progress.step, progress.phase, progress.message, progress.eta_seconds) == (4, None, None, None)
    report_checkpoints(Path(site.client.job(job.id).run_directory or ""))
    page.reload()
    checkpoints = page.locator('#events li[data-what="checkpoint_saved"]')
    expect(checkpoints).to_have_count(1)
    expect(page.locator("#events li").last).to_contain_text("the last of 3")
    expect(page.locator("#events li").last).to_contain_text("step 3")
    page.check("#all-events")
    expect(checkpoints).to_have_count(3)
    site.client.cancel(job.id)


def test_the_page_counts_down_drops_what_is_void_and_goes_on(page: Page, site: Site) -> None:
    job = site.client.submit(DOCUMENT)
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#state")).to_have_text("recovering")
    expect(page.locator("#progress-text")).to_contain_text("step 4 of 5 · attempt 2 starts in 49 min")
    expect(page.locator("#message")).to_contain_text(
        "attempt 2 of at most 4 (if none makes progress) starts 3000 s later"
    )
    expect(page.locator("#loss-chart")).to_have_attribute("data-points", "4")
    expect(page.locator("#auc-chart")).to_have_attribute("data-points", "2")
    (saved,) = site.client.checkpoints(job.id)
    tile = page.locator("#tiles div", has_text="Last checkpoint")
    expect(tile).to_contain_text("step 2")
    expect(tile).to_contain_text("1 byte")
    page.goto(f"{site.url}/")
    row = page.locator("#jobs tbody tr", has_text=job.id)
    expect(row.locator("td.progress small")).to_contain_text("attempt 2 starts in")
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#attempts tbody tr")).to_have_count(1)
    expect(page.locator("#loss-chart")).to_have_attribute("data-points", "4")

    run_directory = Path(saved.path).parents[1]
    end_wait(run_directory)
    expect(page.locator("#loss-chart")).to_have_attribute("data-points", "2")
    expect(page.locator("#auc-chart")).to_have_attribute("data-points", "1")
    expect(page.locator("#loss-chart")).to_have_attribute("data-marks", "2")
    expect(page.locator("#progress-text")).to_contain_text("step 2 of 5")
    with (run_directory / "attempt-2/logs/rank-0.log").open("a") as log:
        log.write("of the second attempt\n")
    expect(page.locator("#log")).to_contain_text("of the second attempt")

    (run_directory / "go-on").touch()
    expect(page.locator("#state")).to_have_text("succeeded")
    expect(page.locator("#loss-chart")).to_have_attribute("data-points", "5")
    expect(page.locator("#attempts")).to_have_attribute("open", "")
    rows = page.locator("#attempts tbody tr")
    expect(rows.nth(0)).to_contain_text("failedworker crashed02")
    expect(rows.nth(1)).to_contain_text("succeededcompleted2")
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("document.documentElement.scrollWidth <= 360")


def test_a_job_is_paused_and_resumed_with_buttons(page: Page, site: Site) -> None:
    job = site.client.submit({**DOCUMENT, "labels": {"behaviour": "wait"}})
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#resume")).to_be_hidden()
    page.click("#pause")
    expect(page.locator("#state")).to_have_text("paused")
    expect(page.locator("#reason")).to_have_text("user paused")
    expect(page.locator("#pause")).to_be_hidden()
    page.click("#resume")
    expect(page.locator("#pause")).to_be_visible()
    expect(page.locator("#attempts tbody tr")).to_have_count(2)
    site.client.cancel(job.id)
    expect(page.locator("#state")).to_have_text("cancelled")
