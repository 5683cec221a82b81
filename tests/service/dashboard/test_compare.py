"""The page that compares jobs: some side by side, and many as points."""

import csv
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect
from sqlalchemy import text

from service.client import Job, JobDetails
from service.dashboard.static_files import STATIC_PATH
from service.database import Database
from tests.patience import wait_until
from tests.service.dashboard.conftest import Site
from tests.service.seeding import add_steps

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {"DLRM_NUM_CORES": "4", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
HOSTILE = "<img src=x onerror=alert(1)>"
DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}


def submit(site: Site, name: str, behaviour: str = "succeed_silently", **changes: Any) -> Job:
    labels = {"behaviour": behaviour, **changes.pop("labels", {})}
    return site.client.submit({**DOCUMENT, "name": name, "labels": labels, **changes})


def find_database(job: JobDetails) -> Path:
    assert job.run_directory
    return Path(job.run_directory).parents[1] / "service.sqlite3"


def end(site: Site, jobs: dict[str, tuple[float, float]]) -> None:
    """Wait until jobs have succeeded, and give each an AUC, with a standard error of 0.002, and a calibration."""
    for job_id, (auc, calibration) in jobs.items():
        wait_until(lambda job_id=job_id: site.client.job(job_id).state == "SUCCEEDED")
        metrics = f'{{"auc": {auc}, "auc_standard_error": 0.002, "calibration": {calibration}}}'
        with closing(sqlite3.connect(find_database(site.client.job(job_id)), timeout=30)) as connection, connection:
            connection.execute("UPDATE job_documents SET metrics = ? WHERE job_id = ?", (metrics, job_id))


@pytest.fixture(scope="module")
def sweep(site: Site) -> list[str]:
    """Ids of four jobs of a sweep: two sizes of the batch with two seeds each."""
    labels = {"sweep": "rates", "note": HOSTILE}
    figures = {(64, 1): (0.70, 1.3), (64, 2): (0.71, 0.98), (128, 1): (0.72, 1.1), (128, 2): (0.731, 0.6)}
    ids = [
        submit(site, f"size-{size}", labels=labels, batch={"global_size": size}, run={"seed": seed}).id
        for size, seed in figures
    ]
    end(site, dict(zip(ids, figures.values(), strict=True)))
    return ids


def test_two_methods_are_judged_and_jobs_are_added_removed_and_made_the_baseline(
    page: Page, site: Site, sweep: list[str]
) -> None:
    page.goto(f"{site.url}/compare")
    expect(page.locator("#empty")).to_contain_text("Choose up to eight jobs")
    expect(page.locator("#sweeps")).to_have_text("Sweeps: rates (4)")
    page.fill("#add", sweep[0])
    expect(page.locator("#found li")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("#sentence")).to_contain_text("Add a second one")
    page.goto(f"{site.url}/compare?ids={','.join(sweep)}")
    expect(page.locator("#sentence")).to_have_text(
        "B (size-128) has the better AUC, 0.7255: 0.0205 above A (size-64), which is more than its uncertainty."
    )
    expect(page.locator("#basis")).to_contain_text("from 2 pairs of jobs with the same seed")
    expect(page.locator("#differs")).to_have_text("B and A differ in one setting: batch.global_size (128 and 64).")
    expect(page.locator("#settings td.changed")).to_have_text(["128"])
    auc = page.locator("#figures tbody tr", has_text="AUC").first
    expect(auc.locator("td").nth(1)).to_contain_text("0.7255best")
    expect(auc.locator("td").nth(1)).to_contain_text("+0.0205 ± 0.0064, better")
    calibration = page.locator("#figures tbody tr", has_text="Calibration")
    expect(calibration.locator("th")).to_have_text("Calibrationpredicted clicks by real ones; nearer to 1 is better")
    expect(page.locator("#auc .chart")).to_have_attribute("data-points", "1")
    chart = page.query_selector("#auc .chart")
    assert chart is not None
    expect(page.locator("#auc .u-legend th")).to_have_text(
        [
            "samples",
            *(f"{letter} size-{size}, seed {seed}" for letter, size in (("A", 64), ("B", 128)) for seed in (1, 2)),
        ]
    )
    expect(page.locator("#compared li")).to_have_count(4)
    with page.expect_download() as download:
        page.click("#csv")
    rows = Path(download.value.path()).read_text().splitlines()
    assert rows[0] == "kind,name,A,B"
    assert "setting,batch.global_size,64,128" in rows
    assert "figure,auc,0.705,0.7255" in rows

    page.locator("#compared").get_by_role("button", name="Use size-128 as baseline").first.click()
    page.wait_for_url(f"{site.url}/compare?ids={','.join([sweep[2], sweep[0], sweep[1], sweep[3]])}")
    expect(page.locator("#sentence")).to_contain_text("A (size-128) has the better AUC")
    expect(page.locator("#settings td.changed")).to_have_text(["64"])
    page.get_by_role("button", name="Remove size-64 from the comparison").first.click()
    expect(page.locator("#compared li")).to_have_count(3)
    expect(page.locator("#auc .u-legend th")).to_have_count(4)
    # Charts keep what listens to them.
    assert chart.evaluate("chart => chart.isConnected")
    page.go_back()
    expect(page.locator("#compared li")).to_have_count(4)


@pytest.mark.slow
def test_curves_of_jobs_of_unequal_length_are_read_zoomed_and_saved_raw(
    page: Page, site: Site, sweep: list[str]
) -> None:
    ids = [sweep[0], sweep[2]]
    database = Database(f"sqlite:///{find_database(site.client.job(ids[0]))}")
    with database.write() as session:
        for job_id, num_steps in zip(ids, (5, 20), strict=True):
            session.execute(text("DELETE FROM steps WHERE job_id = :id"), {"id": job_id})
            add_steps(session, job_id, num_steps)
    database.close()
    page.goto(f"{site.url}/compare?ids={','.join(ids)}&axis=step&smoothing=0")
    loss = page.locator("#loss-chart")
    expect(loss).to_have_attribute("data-points", "20")
    values = loss.locator(".u-series:not(.unlisted) .u-value")
    expect(values).to_have_text(["last of each", "0.4562", "0.4712"])
    loss.press("End")
    expect(values).to_have_text(["20", "\N{EN DASH}", "0.4712"])

    page.get_by_label("Smoothing").fill("0.5")
    over = loss.locator(".u-over")
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.125 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.325 * box["width"], box["y"] + 60, steps=3)
    page.mouse.up()
    expect(page.locator("#zoom-range")).to_contain_text("steps ")
    page.get_by_label("Menu of Loss").click()
    with page.expect_download() as download:
        page.locator("#loss").get_by_role("button", name="Save as CSV").click()
    assert download.value.suggested_filename == "comparison-loss-steps-3-6.csv"
    head, *rows = csv.reader(Path(download.value.path()).read_text().splitlines())
    own = [f"Loss: {name}{kind}" for name in ("A size-64", "B size-128") for kind in ("", ", smoothed")]
    assert head == ["step", *own]
    assert [row[1] for row in rows] == ["0.4542", "0.4552", "0.4562", ""]
    # The mean of 0.4522, 0.4532 and 0.4542, weighted by 1/4, 1/2 and 1.
    assert float(rows[0][2]) == pytest.approx((0.4522 / 4 + 0.4532 / 2 + 0.4542) / 1.75)
    page.get_by_role("button", name="Reset zoom").click()
    expect(page.locator("#zoom")).to_be_hidden()
    loss.press("Home")
    loss.press("+")
    expect(page.locator("#zoom-range")).to_have_text("steps 1 to 11")

    page.set_viewport_size({"width": 390, "height": 844})
    auc = page.locator("#figures tbody tr", has_text="AUC").first
    for cell in auc.locator("td").all():
        place = cell.bounding_box()
        assert place is not None
        assert place["x"] + place["width"] <= 390
    tops = [page.locator(part).bounding_box() for part in ("#figures", "#compared", "#curves")]
    assert sorted(place["y"] for place in tops if place) == [place["y"] for place in tops if place]
    page.wait_for_function("document.documentElement.scrollWidth <= 390")


@pytest.mark.slow
def test_a_running_job_is_followed_until_it_can_be_judged(page: Page, site: Site, sweep: list[str]) -> None:
    page.add_init_script("const repeat = setInterval; window.setInterval = (work, pause) => repeat(work, pause / 20);")
    job = submit(site, "follow", "succeed_when_told", precision="bf16")
    page.goto(f"{site.url}/compare?ids={sweep[0]},{job.id}")
    expect(page.locator("#compared li").nth(1).locator(".state")).to_have_text("running")
    expect(page.locator("#sentence")).to_contain_text("Nothing can be judged yet")
    page.focus("#add")
    directory = site.client.job(job.id).run_directory
    (Path(directory) / "go").touch()
    expect(page.locator("#compared li").nth(1).locator(".state")).to_have_text("succeeded")
    expect(page.locator("#sentence")).to_contain_text("has the better AUC")
    # The focus stays where it was.
    expect(page.locator("#add")).to_be_focused()


@pytest.mark.slow
def test_what_cannot_be_compared_is_said_with_a_way_out(page: Page, site: Site, sweep: list[str]) -> None:
    page.goto(f"{site.url}/compare?ids={','.join([*sweep, *(f'job_{number}' for number in range(5))])}")
    expect(page.locator("#problem")).to_contain_text("up to 8 jobs")
    expect(page.locator("#problem")).to_contain_text("dlrm compare take up to 20")
    expect(page.get_by_role("link", name="Compare the first 8")).to_be_visible()


@pytest.mark.slow
def test_jobs_of_a_sweep_are_points_from_which_some_are_chosen(page: Page, site: Site, sweep: list[str]) -> None:
    submit(site, "size-no", labels={"sweep": "rates", "note": HOSTILE}, batch={"global_size": 2048})
    page.goto(f"{site.url}/jobs/{sweep[0]}")
    page.get_by_role("link", name="all jobs of rates as points").click()
    page.wait_for_url(f"{site.url}/compare?label=sweep%3Arates")
    expect(page.locator("#count")).to_contain_text("5 jobs; ")
    expect(page.locator("#x")).to_have_value("batch.global_size")
    expect(page.locator("#y")).to_have_value("auc")
    expect(page.locator("#scatter .mean")).to_have_count(2)
    expect(page.locator("#scatter .title").first).to_have_text("batch.global_size (logarithmic)")
    first = page.locator("#scatter .point").first
    first.focus()
    expect(page.locator("#looked")).to_have_text("size-64, AUC 0.7000, batch.global_size 64, run.seed 1")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#looked")).to_contain_text("AUC 0.7100")
    page.get_by_role("button", name="run.seed").click()
    expect(page.locator("#results th[aria-sort=ascending]")).to_have_text("run.seed ↑")
    page.locator("#results").get_by_role("checkbox", name=sweep[3]).check()
    page.select_option("#colour", "run.seed")
    expect(page.locator("#legend li")).to_have_count(4)
    page.reload()
    expect(page.locator("#legend li")).to_have_count(4)
    expect(page.locator("#scatter .chosen")).to_have_count(2)
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    page.get_by_role("link", name="Compare 2 jobs side by side").click()
    expect(page.locator("#sentence")).to_contain_text("B (size-128) has the better AUC")
    page.wait_for_function("document.documentElement.scrollWidth <= 390")


@pytest.mark.slow
def test_the_best_jobs_of_a_figure_are_those_that_the_service_calls_better(
    page: Page, site: Site, sweep: list[str]
) -> None:
    page.goto(f"{site.url}/compare?label=sweep:rates&y=calibration")
    expect(page.locator("#best-title")).to_have_text("Nearest to 1: Calibration")
    expect(page.locator("#best strong")).to_have_text(["0.9800", "1.1000", "1.3000", "0.6000"])
    expect(page.locator("#best small").first).to_have_text("global_size 64 · seed 2")
    page.select_option("#y", "auc")
    expect(page.locator("#best-title")).to_have_text("Highest AUC")
    page.select_option("#y", "seconds")
    expect(page.locator("#best-title")).to_have_text("Lowest Duration")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["max_restarts", "run.seed", "batch.global_size"], "batch.global_size"),
        (["data.num_readers", "dense_optimizer.learning_rate", "model.embedding_dim"], "dense_optimizer.learning_rate"),
        (["max_restarts", "model.embedding_dim"], "model.embedding_dim"),
    ],
)
def test_the_horizontal_axis_begins_with_a_setting_that_can_change_results(
    page: Page, site: Site, names: list[str], expected: str
) -> None:
    page.goto(f"{site.url}/signin")
    settings = [
        {"kind": "setting", "name": name, "values": [1, 2, 2 + len(names) - place]} for place, name in enumerate(names)
    ]
    script = f"""async (columns) => {{
      const module = await import("{STATIC_PATH}/compare/values.js");
      return module.chooseX(module.describeColumns(columns), null).name;
    }}"""
    assert page.evaluate(script, settings) == expected


def test_an_answer_about_an_earlier_label_does_not_replace_the_present_one(
    page: Page, site: Site, sweep: list[str]
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/results?label=sweep*", hold)
    with page.expect_request("**/v1/results?label=sweep*"):
        page.goto(f"{site.url}/compare?label=sweep:rates")
    page.fill("#label", "note=none")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#none")).to_be_visible()
    with page.expect_response(held[0].request.url):
        held[0].continue_()
    page.evaluate("() => new Promise((done) => setTimeout(done, 100))")
    expect(page.locator("#none")).to_be_visible()
    expect(page.locator("#results")).to_be_hidden()
    assert page.url.startswith(f"{site.url}/compare?label=note:none")


@pytest.mark.slow
def test_a_label_that_cannot_be_read_leaves_no_chart_below_its_error(
    signed_in: BrowserContext, site: Site, sweep: list[str]
) -> None:
    page = signed_in.new_page()
    page.goto(f"{site.url}/compare?label=sweep:rates")
    expect(page.locator("#results")).to_be_visible()
    page.fill("#label", "note")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#trouble")).to_contain_text("has no value")
    expect(page.locator("#results")).to_be_hidden()
    page.close()
