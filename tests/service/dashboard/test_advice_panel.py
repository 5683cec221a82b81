"""Panel of what to change on the page of a job."""

import tomllib

import pytest
from playwright.sync_api import Page, expect

from tests.service.dashboard.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("fake_trainer")]

SETTINGS = {
    "DLRM_NUM_CORES": "3",
    "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2",
    "DLRM_GRACE_PERIOD_SECONDS": "5",
}
DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}
PANEL = "#advice-panel"


@pytest.mark.slow
def test_the_panel_has_figures_lines_to_copy_and_a_link_to_a_new_job_with_them(page: Page, site: Site) -> None:
    ended = site.client.submit({**DOCUMENT, "labels": {"behaviour": "fall_behind"}})
    page.goto(f"{site.url}/jobs/{ended.id}")
    item = page.locator(f"{PANEL} [data-name=worse_than_logistic_regression]")
    expect(item).to_contain_text("0.0500 below the 0.8000 ± 0.0040 of logistic regression")
    expect(item.locator(".gain")).to_have_text("Gain: about 0.0500 of AUC, or more")
    expect(item.locator(".certainty")).to_have_text("sure")
    expect(item.locator("pre")).to_have_text('run.blend = "logistic"\nrun.validation_fraction = 0.1')
    item.get_by_role("link", name="New job with this").click()
    origin, text = page.locator("#origin"), page.get_by_label("Job document")
    expect(origin).to_contain_text('with run.blend = "logistic", run.validation_fraction = 0.1. Submit')
    labels = {"behaviour": "fall_behind"}
    run = {"blend": "logistic", "validation_fraction": 0.1}
    assert tomllib.loads(text.input_value()) == {**DOCUMENT, "labels": labels, "run": run}
    expect(page.locator("#finding-state")).to_have_text("Nothing is at fault.")
    text.fill(text.input_value() + "# mine")
    page.reload()
    expect(origin).to_contain_text('with run.blend = "logistic"')
    assert text.input_value().endswith("# mine")
    page.goto(f"{page.url.partition('&')[0]}&set=run.epochs:3&set=__proto__.a:1&set=run.seed&set=run.seed:1+2")
    expect(origin).to_contain_text("with run.epochs = 3, __proto__.a = 1. Submit makes a new job of it. Left out")
    expect(origin).to_contain_text("no FIELD:VALUE in TOML: run.seed, run.seed:1 2.")
    odd = {"__proto__": {"a": 1}}
    assert tomllib.loads(text.input_value()) == {**DOCUMENT, "labels": labels, "run": {"epochs": 3}, **odd}
    expect(page.locator("#finding-list")).to_contain_text("unknown field")
    assert page.evaluate("({}).a") is None
    page.get_by_role("button", name="Bring it back").click()
    assert text.input_value().endswith("# mine")
