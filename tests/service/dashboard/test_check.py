"""What the page of a new job shows of a check, with the real planning program."""

import re
import sys
import tomllib

import pytest
from playwright.sync_api import Page, expect

from tests.patience import wait_until
from tests.service.dashboard.conftest import Site

pytestmark = pytest.mark.browser

SETTINGS = {"DLRM_TRAINER_PYTHON": sys.executable, "DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
PRESET_LINE = 'preset = "large_batch"\n'
DOCUMENT = """\
[data]
format = "synthetic"
synthetic = { num_rows = 5_000_000, num_ids = 1000 }

[run]
epochs = 1
yardsticks = "none"

[resources]
workers_per_node = 1
memory = "2GiB"
"""


def check(page: Page, text: str) -> None:
    page.get_by_label("Job document").fill(text)
    page.get_by_role("button", name="Check", exact=True).click()


@pytest.mark.slow
def test_a_check_shows_what_the_preset_decides_what_it_costs_and_why(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/new")
    page.get_by_label("Job document").fill(DOCUMENT)
    page.locator("#first").get_by_label("Preset").select_option(label="large_batch")
    page.get_by_label("Job document").press("Control+Enter")
    expect(page.locator("#verdict")).to_have_text("Fits now The job would start at once.")
    # 16,384 is the largest power of two of which 4,500,000 rows have 240. It grows from 2,048.
    expect(page.locator("#tiles div", has_text="Batch")).to_contain_text("16,384grows from 2,048")
    # Steps of 2,048 until a fifth of the samples, of the sizes between, and of 16,384 from 56.67 % on.
    expect(page.locator("#tiles div", has_text="Steps")).to_contain_text(str(440 + 330 + 119))
    expect(page.locator("#tiles div", has_text="Steps")).to_contain_text("4,500,000 samples")
    expect(page.locator("#tiles div", has_text="Training")).to_have_text(
        re.compile(r"Training[1-9].* (s|min)estimated, about [\d,]+ samples/s at 16,384")
    )
    expect(page.locator("#tiles div", has_text="Core-hours")).to_have_text(re.compile(r"0\.\d+1 core while it trains"))
    expect(page.locator("#tiles div", has_text="Memory")).to_contain_text("of 2.0 GiB on each machine")
    expect(page.locator("#rates canvas")).to_have_count(2)
    expect(page.locator("#rates-axis")).to_have_text("over the steps")
    batch = page.locator("#derived tr", has_text="batch.global_size")
    expect(batch).to_contain_text("preset large_batch: for at least 240 steps")
    sizes = "2,048 until 0.2, 10 more sizes, 13,824 until 0.5667 of the samples"
    expect(page.get_by_role("row", name=f"batch.schedule {sizes}")).to_be_visible()
    # Every reason is in sight, beside the widest value.
    assert page.locator("#derived").evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
    tables = page.locator("#plan tbody").first.locator("tr")
    expect(tables).to_have_count(10)
    page.get_by_role("button", name="All 26 tables").click()
    expect(tables).to_have_count(26)
    expect(page.locator("#age")).to_be_hidden()
    page.locator("#first").get_by_label("Preset").select_option("")
    expect(page.locator("#age")).to_have_text("The document has changed since this check.")
    assert list(site.client.jobs()) == []


@pytest.mark.slow
def test_a_job_that_cannot_run_is_told_why_and_which_field_mends_it(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/new")
    check(page, DOCUMENT.replace("2GiB", "9000GiB") + "\n[batch]\nglobal_size = 524_288\n")
    expect(page.locator("#verdict")).to_contain_text("Cannot run")
    expect(page.locator("#faults small")).to_contain_text("valid: at most")
    expect(page.locator("#warnings")).to_contain_text("the run has only 9 steps of 524,288 to learn in")
    expect(page.locator("#notes")).to_contain_text("resources.memory: 9,000.0 GiB is more than")
    page.locator("#faults").get_by_role("button", name="resources.memory").click()
    assert page.evaluate("getSelection().toString()") == 'memory = "9000GiB"'
    check(page, f'{PRESET_LINE}data.train = ["nowhere.tsv"]')
    expect(page.locator("#faults button").first).to_have_text("data.train.0")
    expect(page.locator("#tiles div", has_text="Batch")).to_contain_text("decided by the rows, once they are read")
    expect(page.locator("#tiles div", has_text="Steps")).to_contain_text("decided by the rows")
    expect(page.locator("#notes")).to_contain_text("are unknown until their values are counted")
    expect(page.locator("#plan")).to_be_hidden()


@pytest.mark.slow
def test_a_job_that_would_wait_is_told_for_whom(page: Page, site: Site) -> None:
    document = tomllib.loads(DOCUMENT) | {"name": "holder", "resources": {"workers_per_node": 2, "memory": "2GiB"}}
    job = site.client.submit(document)
    wait_until(lambda: site.client.job(job.id).state in ("STARTING", "RUNNING"))
    page.goto(f"{site.url}/new")
    check(page, DOCUMENT)
    expect(page.locator("#verdict")).to_contain_text("Would wait The job fits, and would wait: needs 1 core, 0 free")
    expect(page.locator("#holders li")).to_contain_text(f"holder of {job.owner} runs now")
    site.client.cancel(job.id)
