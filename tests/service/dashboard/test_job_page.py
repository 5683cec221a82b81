"""The page of a job whose trainer behaves as its label says: each part of the page, until the job has ended."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from service.client import Job
from service.reasons import ADVICE, Reason
from tests.patience import wait_until
from tests.service.dashboard.conftest import Site, make_context

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {
    "DLRM_NUM_CORES": "2",
    "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2",
    "DLRM_GRACE_PERIOD_SECONDS": "5",
    "DLRM_RESTART_DELAY_SECONDS": "3000",
    "DLRM_MAX_RESTART_DELAY_SECONDS": "3000",
}
DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}
UNKNOWN = "\N{EN DASH}"


def open_page(page: Page, site: Site, behaviour: str, state: str | None = None, **changes: Any) -> Job:
    """Submit a job, open its page, and wait until it says that the job is in `state`."""
    job = site.client.submit({**DOCUMENT, "labels": {"behaviour": behaviour}, **changes})
    page.goto(f"{site.url}/jobs/{job.id}")
    if state is not None:
        expect(page.locator("#state")).to_have_text(state)
    return job


def find_batch(page: Page) -> Locator:
    return page.locator("#tiles div").filter(has=page.get_by_text("Batch", exact=True))


def change_database(run_directory: Path, statement: str, *rows: tuple[object, ...]) -> None:
    """Execute a statement with each of the rows in the service's database."""
    with closing(sqlite3.connect(run_directory.parents[1] / "service.sqlite3")) as connection, connection:
        connection.executemany(statement, rows)


@pytest.mark.slow
def test_how_far_a_preparation_is_stands_on_both_pages_and_how_fast_on_its_own(page: Page, site: Site) -> None:
    job = open_page(page, site, "prepare")
    words = "preparing · reading: 1,200,000 rows, 310,000 rows/s, 12 s left"
    expect(page.locator("#progress-text")).to_have_text(f"42 % · {words}")
    expect(page.locator("#progress")).to_have_js_property("value", 0.42)
    page.goto(f"{site.url}/")
    expect(page.locator("#jobs tbody tr", has_text=job.id).locator("td.progress small")).to_have_text("preparing")
    expect(page.locator("#jobs tbody tr", has_text=job.id).locator("progress")).to_have_js_property("value", 0.42)
    site.client.cancel(job.id)
    expect(page.locator("#jobs tbody tr", has_text=job.id).locator(".state")).to_have_text("cancelled")


@pytest.mark.slow
def test_a_model_worse_than_logistic_regression_is_no_plain_success(page: Page, site: Site) -> None:
    job = site.client.job(open_page(page, site, "fall_behind", "succeeded").id)
    [warning] = job.warnings
    assert [result.name for result in job.yardsticks] == ["logistic_regression"]
    expect(page.locator("#warnings li")).to_have_text(f"{warning[0].upper()}{warning[1:]}")
    expect(page.locator("#state[data-warned]")).to_be_visible()
    rows = page.locator("#yardsticks tbody tr")
    expect(rows).to_have_count(3)
    assert [row.locator("td, th").all_inner_texts() for row in rows.all()] == [
        ["this model", "0.7500 ± 0.0050", "0.4500", UNKNOWN, UNKNOWN, UNKNOWN],
        ["logistic regression", "0.8000 ± 0.0040", "0.4200", "1.0100", "1.5", "9,000"],
        ["constant predictor", UNKNOWN, "0.5500", UNKNOWN, UNKNOWN, UNKNOWN],
    ]
    page.goto(site.url)
    expect(page.locator(".state[data-warned]")).to_have_text("succeeded")


@pytest.mark.slow
def test_what_a_run_has_too_little_of_stands_on_its_page_while_it_runs(page: Page, site: Site) -> None:
    job = open_page(page, site, "wait_warned", "running")
    sentences = ["The run has only 4 steps to learn in", "There are only 100 evaluation rows"]
    expect(page.locator("#warnings li")).to_have_text(sentences)
    site.client.cancel(job.id)


@pytest.mark.slow
def test_a_run_without_noise_or_simple_models_has_no_empty_places_for_them(page: Page, site: Site) -> None:
    job = site.client.job(open_page(page, site, "succeed", "succeeded").id)
    assert (job.warnings, job.yardsticks) == ([], [])
    for hidden in ("#yardsticks", "#warnings"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.locator("#tiles")).not_to_contain_text("Noise scale")
    expect(page.locator("#state[data-warned]")).to_have_count(0)


@pytest.mark.slow
def test_the_page_tells_the_present_batch_its_stages_and_the_share_of_samples(page: Page, site: Site) -> None:
    batch = {"global_size": 64, "schedule": [{"until_fraction": 0.25, "global_size": 32}]}
    job = open_page(page, site, "grow_batch", batch=batch)
    expect(find_batch(page)).to_have_text("Batch64stages: 32 until 25 %, then 64")
    # Two steps of five have made a tenth of the samples.
    expect(page.locator("#progress-text")).to_contain_text("10 % · step 2 of 5")
    shown = site.client.job(job.id)
    assert (shown.progress.done_fraction, [stage.is_current for stage in shown.batch_stages]) == (0.1, [False, True])
    site.client.cancel(job.id)


@pytest.mark.slow
def test_the_page_shortens_many_stages(page: Page, site: Site) -> None:
    job = open_page(page, site, "grow_batch", batch={"global_size": 64, "schedule": "auto"})
    # From 8, four sizes for each doubling.
    stages = "stages: 8 until 20 %, then 10 more sizes, then 54 until 56.67 %, then 64"
    expect(find_batch(page)).to_contain_text(stages)
    site.client.cancel(job.id)


@pytest.mark.slow
def test_the_page_counts_down_to_the_next_attempt_and_goes_on_with_it(page: Page, site: Site) -> None:
    job = open_page(page, site, "lose_two_steps_once", "recovering")
    expect(page.locator("#progress-text")).to_contain_text("step 4 of 5 · attempt 2 starts in 49 min")
    expect(page.locator("#notice[data-tone=warn] h2")).to_have_text("Attempt 1 failed: worker crashed")
    expect(page.locator("#message")).to_contain_text(
        "attempt 2 of at most 4 (if none makes progress) starts 3000 s later"
    )
    expect(page.locator(".last-lines")).to_have_text("rank 0 says grüezi")
    (saved,) = site.client.checkpoints(job.id)
    tile = page.locator("#tiles div", has_text="Last checkpoint")
    expect(tile).to_contain_text("step 2")
    expect(tile).to_contain_text("1 byte")
    lines = page.locator(".timeline .line")
    expect(lines.nth(1)).to_contain_text("Next attemptwaiting for a restart")
    page.goto(f"{site.url}/")
    row = page.locator("#jobs tbody tr", has_text=job.id)
    expect(row.locator("td.progress small")).to_contain_text("attempt 2 starts in")
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#attempts tbody tr")).to_have_count(1)

    run_directory = Path(saved.path).parents[1]
    statement = "UPDATE jobs SET restarts_at = '2026-01-01 00:00:00' WHERE id = ?"
    change_database(run_directory, statement, (run_directory.name,))
    expect(page.locator("#progress-text")).to_contain_text("step 2 of 5")
    expect(page.locator("#notice")).to_be_hidden()
    (run_directory / "go-on").touch()
    expect(page.locator("#state")).to_have_text("succeeded")
    expect(page.locator("#bar")).to_be_hidden()
    expect(lines.nth(0).locator('[data-end="FAILED"]')).to_have_count(1)
    expect(lines.nth(1).locator('[data-end="SUCCEEDED"]')).to_have_count(1)
    rows = page.locator("#attempts tbody tr")
    expect(rows.nth(0)).to_contain_text("failedworker crashed-902")
    expect(rows.nth(1)).to_contain_text("succeededcompleted02")
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("document.documentElement.scrollWidth <= 360")


def test_a_failed_job_says_first_what_failed_and_what_to_do_and_shows_nothing_empty(page: Page, site: Site) -> None:
    job = open_page(page, site, "crash", "failed", max_restarts=0)
    notice = page.locator("#notice[data-tone=bad]")
    expect(notice.locator("h2")).to_have_text("Failed: worker crashed")
    expect(notice.locator("#message")).to_contain_text("exit code 3")
    expect(notice.locator("#what-to-do")).to_have_text(ADVICE[Reason.WORKER_CRASHED])
    expect(notice.locator(".hint")).to_have_text("attempt 1 · before the first step · exit code 3")
    expect(notice.locator(".last-lines")).to_have_text("a wheel came off")
    expect(notice.get_by_role("link", name="whole log")).to_have_attribute("href", f"/jobs/{job.id}/logs?rank=launch")
    for empty in ("#bar", "#tiles", "#previews", "#waiting", "#plan", "#yardsticks", "#pause", "#cancel"):
        expect(page.locator(empty)).to_be_hidden()
    notice_box, attempts_box = notice.bounding_box(), page.locator("#attempts").bounding_box()
    assert notice_box is not None
    assert attempts_box is not None
    assert notice_box["y"] < attempts_box["y"]


@pytest.mark.slow
def test_a_waiting_job_says_who_holds_the_room_and_its_priority_is_set_in_place(page: Page, site: Site) -> None:
    holding = [open_page(page, site, "wait", "running", name=f"holds-{number}") for number in (1, 2)]
    job = open_page(page, site, "succeed", "queued", name="waits")
    waiting = page.locator("#waiting")
    expect(waiting.locator("h2")).to_have_text("Waits for cores")
    expect(waiting.locator("#why")).to_contain_text("Needs 1 core, 0 free.")
    expect(waiting.locator(".facts")).to_contain_text("number 1")
    expect(page.locator("#holders tbody th")).to_have_text(["holds-1 running", "holds-2 running"])
    expect(page.locator("#notice")).to_be_hidden()

    page.fill("#priority", "7")
    page.click("#priority-form button")
    wait_until(lambda: site.client.job(job.id).priority == 7)

    page.click("#hold")
    expect(waiting.locator("h2")).to_contain_text("Held")
    expect(waiting.locator("#why")).to_contain_text("Held by admin (key admin).")
    expect(page.locator("#holders")).to_be_hidden()
    page.click("#release")
    expect(page.locator("#holders tbody tr")).to_have_count(2)
    for other in holding:
        site.client.cancel(other.id)
    expect(page.locator("#state")).to_have_text("succeeded")
    expect(waiting).to_be_hidden()


@pytest.mark.slow
def test_labels_are_edited_and_an_ended_job_is_restarted_and_deleted(page: Page, site: Site) -> None:
    job = open_page(page, site, "succeed", "succeeded", name="first")
    page.click("#edit-labels")
    editor = page.locator("#label-editor")
    editor.get_by_role("button", name="Add a label").click()
    editor.get_by_label("name of a label").last.fill("team")
    editor.get_by_label("value of a label").last.fill("<b>ads</b>")
    editor.get_by_role("button", name="Save").click()
    expect(page.locator("#labels")).to_contain_text("team: <b>ads</b>")
    assert site.client.job(job.id).labels == {"behaviour": "succeed", "team": "<b>ads</b>"}

    page.click("#restart")
    page.wait_for_url(lambda url: "/jobs/" in url and job.id not in url)
    expect(page.locator("#about")).to_contain_text(f"restart of {job.id}")
    expect(page.locator("#state")).to_have_text("succeeded")
    page.click("#delete")
    expect(page.locator("#confirm")).to_contain_text("Delete first?")
    expect(page.locator("#confirm")).to_contain_text("its model (0 byte)")
    page.keyboard.press("Escape")
    page.click("#delete")
    page.click("#confirm button.danger")
    page.wait_for_url(f"{site.url}/")
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#clone")).to_have_attribute("href", f"/new?from={job.id}")
    expect(page.locator("#compare")).to_have_attribute("href", f"/compare?ids={job.id}")


@pytest.mark.slow
def test_what_is_refused_is_said_where_it_was_asked(signed_in: BrowserContext, site: Site) -> None:
    # The browser reports each refusal, which the fixture `page` takes for a fault.
    page = signed_in.new_page()
    job = open_page(page, site, "wait", "running")
    site.client.pause(job.id)
    page.route("**/resume", lambda route: route.fulfill(status=409, json={"detail": "not now"}))
    page.click("#resume")
    expect(page.locator("#action-fault")).to_have_text("not now")
    page.click("#edit-labels")
    editor = page.locator("#label-editor")
    editor.get_by_label("name of a label").last.fill("no good name")
    editor.get_by_role("button", name="Save").click()
    expect(editor.locator(".fault")).to_contain_text("no good name")
    page.close()
    site.client.cancel(job.id)


@pytest.mark.slow
def test_a_viewer_has_no_actions(page: Page, site: Site, browser: Browser) -> None:
    job = open_page(page, site, "wait", "running")
    key = site.client.create_key("reader", "viewer", owner="admin").key
    context = make_context(browser)
    reader = context.new_page()
    reader.goto(f"{site.url}/signin")
    reader.fill("#credential", key or "")
    reader.keyboard.press("Enter")
    reader.wait_for_url(f"{site.url}/")
    reader.goto(f"{site.url}/jobs/{job.id}")
    expect(reader.locator("#me")).to_contain_text("viewer")
    expect(reader.locator("#state")).to_have_text("running")
    for button in ("#pause", "#cancel", "#clone", "#edit-labels"):
        expect(reader.locator(button)).to_be_hidden()
    reader.close()
    context.close()
    site.client.cancel(job.id)


@pytest.mark.slow
def test_a_job_is_paused_and_resumed_with_buttons(page: Page, site: Site) -> None:
    job = open_page(page, site, "wait")
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


def test_what_a_job_has_left_can_be_downloaded(page: Page, site: Site, tmp_path: Path) -> None:
    job = open_page(page, site, "succeed", "succeeded")
    page.locator("#downloads summary").click()
    with page.expect_download() as download:
        page.locator("#downloads").get_by_role("link", name="attempt-1/logs/rank-0.log").click()
    assert download.value.suggested_filename == f"{job.id}-attempt-1-logs-rank-0.log"
    download.value.save_as(tmp_path / "log")
    assert "grüezi" in (tmp_path / "log").read_text(encoding="utf-8")
