"""The page of a job while it really trains."""

import re
import tarfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dlrm import load_model
from dlrm.record import PART_DESCRIPTIONS
from tests.patience import wait_until
from tests.service.dashboard.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SETTINGS = {"DLRM_NUM_CORES": "2"}
DOCUMENT = {
    "name": "trains",
    "data": {"format": "synthetic", "synthetic": {"num_rows": 50_000, "num_ids": 100, "seed": 2}},
    "model": {"architecture": "dlrm", "embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
    "batch": {"global_size": 1024},
    "dense_optimizer": {"learning_rate": 0.0005},
    # Long enough for the noise scale to be known, and with it an advice.
    "run": {"epochs": 4, "seed": 2, "yardsticks": "logistic", "num_train_eval_rows": 500},
    "moments": {"every": 1},
    "resources": {"memory": "4GiB"},
}


TEXT = """\
[data]
format = "synthetic"
synthetic = { num_rows = 50_000, num_ids = 100, seed = 2 }

[model]
architecture = "dlrm"
embedding_dim = 4
bottom_mlp = [8, 4]
top_mlp = [8, 1]

[batch]
global_size = 512

[run]
epochs = 8

[resources]
memory = "4GiB"
"""


def submit_with_form(page: Page, site: Site, fields: dict[str, str]) -> str:
    """Write a document, fill some fields of the form, submit, and return the id of the job, whose page is open then."""
    page.goto(f"{site.url}/new")
    expect(page.get_by_label("Batch size")).to_be_enabled()
    page.get_by_label("Job document").fill(TEXT)
    for name, value in fields.items():
        page.get_by_label(name).first.fill(value)
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile("/jobs/job_"))
    return page.url.rpartition("/")[2]


def test_a_job_is_submitted_from_the_form_watched_paused_resumed_compared_and_downloaded(
    page: Page, site: Site, tmp_path: Path
) -> None:
    first = submit_with_form(page, site, {"Name of the job": "slow", "Dense learning rate": "0.0005"})
    page.get_by_role("link", name="Curves").click()
    loss = page.locator("#loss-chart")
    expect(loss).to_have_attribute("data-points", re.compile(r"\d+"))
    seen = int(loss.get_attribute("data-points") or 0)
    wait_until(lambda: int(loss.get_attribute("data-points") or 0) > seen)
    page.click("#pause")
    expect(page.locator("#state")).to_have_text("paused")
    page.click("#resume")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("#state")).to_have_text("succeeded")
    expect(page.locator("#attempts tbody tr")).to_have_count(2)
    second = submit_with_form(page, site, {"Name of the job": "quick", "Dense learning rate": "0.005"})
    expect(page.locator("#state")).to_have_text("succeeded")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the model").click()
    with tarfile.open(download.value.path()) as archive:
        archive.extractall(tmp_path, filter="data")
    assert load_model(tmp_path / "model").metrics["auc"] == site.client.job(second).metrics["auc"]
    page.goto(site.url)
    for name in ("slow", "quick"):
        page.get_by_role("checkbox", name=f"Select {name}").check()
    page.get_by_role("link", name="Compare 2 jobs").click()
    expect(page.locator("main")).to_contain_text("dense_optimizer.learning_rate")
    expect(page.locator("main")).to_contain_text("(quick) has the better AUC")
    assert {first, second} == {job.id for job in site.client.jobs()}


def test_curves_figures_events_and_log_grow_until_the_job_has_succeeded(page: Page, site: Site) -> None:
    job = site.client.submit(DOCUMENT)
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#state")).to_have_text("succeeded")
    num_steps = site.client.job(job.id).progress.num_steps
    page.goto(f"{site.url}/jobs/{job.id}/curves")
    expect(page.locator("#loss-chart")).to_have_attribute("data-points", str(num_steps))
    expect(page.locator("#auc-chart")).to_have_attribute("data-points", "10")
    expect(page.locator("#auc-chart .u-legend")).to_contain_text("best possible")
    expect(page.locator("#auc-chart .u-legend")).to_contain_text("training rows")
    page.goto(f"{site.url}/jobs/{job.id}/gradients")
    expect(page.locator("#gsnr [data-rows]")).to_have_attribute("data-points", str(num_steps))
    expect(page.locator("#noise-scale .chart")).to_have_attribute("data-points", str(num_steps))
    expect(page.locator("#shares")).to_be_hidden()
    expect(page.locator("#advice tbody tr", has_text="this run")).to_contain_text("1,024")
    page.goto(f"{site.url}/jobs/{job.id}")
    expect(page.locator("#tiles")).to_contain_text(f"{site.client.job(job.id).metrics['auc']:.4f}")
    expect(page.locator("#plan tbody")).to_have_count(3)
    tables, ranks, parts = page.locator("#plan tbody").all()
    expect(tables.locator("tr")).to_have_count(10)
    # No value of a column is left out: 100 ids, and a row for values that are not known.
    expect(tables.locator("tr").first).to_have_text(re.compile(r"C\d+10\dtable wise0"))
    expect(page.locator("#plan .hint").first).to_contain_text("of the 4.0 GiB that 2 ranks share")
    expect(page.locator("#plan .hint").first).to_contain_text("a step exchanges nothing between ranks")
    expect(ranks.locator("tr").first.locator("td.number")).to_have_count(4)
    expect(parts.locator("tr", has_text="give back").locator("small")).to_have_text(PART_DESCRIPTIONS["give_back"])
    expect(page.locator("#plan .hint").last).to_contain_text("measured")
    # Weights, state and buffers, as fractions of the memory.
    expect(ranks.locator("tr").first.locator(".stack span")).to_have_count(3)
    assert ranks.locator(".stack").first.evaluate("bar => bar.getBoundingClientRect().width") > 50
    names = parts.locator("th").evaluate_all("cells => cells.map(cell => cell.firstChild.textContent)")
    assert names == [name.replace("_", " ") for name in PART_DESCRIPTIONS]
    expect(parts.locator("tr", has_text="table update").locator(".pair span")).to_have_count(2)
    # Estimated, then measured.
    expect(parts.locator("tr", has_text="table update").locator("td", has_text="ms")).to_have_count(2)


def test_the_cancel_button_asks_and_then_cancels(page: Page, site: Site) -> None:
    long_run = {"epochs": 1000, "eval_every_fraction": 1.0}
    job = site.client.submit({**DOCUMENT, "run": long_run})
    page.goto(f"{site.url}/jobs/{job.id}")
    page.click("#cancel")
    page.click("#confirm button.quiet")
    expect(page.locator("#cancel")).to_be_visible()
    assert site.client.job(job.id).state not in {"CANCELLING", "CANCELLED"}
    page.click("#cancel")
    page.click("#confirm button.danger")
    expect(page.locator("#state")).to_have_text("cancelled")
    expect(page.locator("#cancel")).to_be_hidden()
