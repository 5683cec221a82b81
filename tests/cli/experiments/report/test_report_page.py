"""The page of `dlrm report` in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cli.conftest import run
from tests.cli.experiments.report.recorded import list_trials, write_results

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a sweep."""
    directory = tmp_path_factory.mktemp("sweep")
    write_results(directory, list_trials(directory))
    path = directory / "report.html"
    ended = run("report", directory, "--base", "adam", "--output", path)
    assert ended.returncode == 0, ended.stderr
    return path


@pytest.fixture(params=["light", "dark"])
def page(written: Path, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The report in a browser; it must ask for nothing but itself and throw no errors."""
    context = browser.new_context(color_scheme=request.param, offline=True)
    page = context.new_page()
    faults: list[str] = []
    page.on("request", lambda request: request.url in (written.as_uri(), "data:,") or faults.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: message.type in ("error", "warning") and faults.append(message.text))
    page.goto(written.as_uri())
    yield page
    context.close()
    assert faults == []


def test_tables_plots_and_sections_have_names_and_the_trials_are_folded(page: Page) -> None:
    expect(page.get_by_role("table", name="AUC and log-loss on the evaluation rows")).to_be_visible()
    expect(page.get_by_role("rowheader", name="lamb, 4096")).to_have_count(2)
    for name in ("AUC by batch", "Steps to the target AUC by batch", "Samples to the target AUC by batch"):
        expect(page.get_by_role("img", name=name, exact=True)).to_be_visible()
    trials = page.get_by_role("table", name="Trials", exact=True)
    expect(trials).to_be_hidden()
    page.get_by_role("heading", name="All trials, with versions and hardware").click()
    expect(trials).to_be_visible()


def test_text_is_told_from_the_page_behind_it(page: Page) -> None:
    background, text = page.evaluate(
        """() => [document.querySelector(".plot path"), document.querySelector(".plot text")]
            .map(part => getComputedStyle(part).fill)"""
    )
    assert background != text
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (background == "rgb(255, 255, 255)") is not is_dark
    assert page.evaluate("getComputedStyle(document.body).color !== getComputedStyle(document.body).backgroundColor")


def test_a_narrow_screen_needs_no_sideways_scrolling_of_the_page(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_role("heading", name="All trials, with versions and hardware").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
