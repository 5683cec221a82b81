"""Everybody can use every page and state of the dashboard: in both schemes, on every screen, with a keyboard."""

import re
import tomllib
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.patience import wait_until
from tests.service.dashboard.accessibility import (
    list_faults_of_all_schemes,
    list_faults_of_one_scheme,
    list_keyboard_faults,
)
from tests.service.dashboard.conftest import Site, make_context, note_faults
from tests.service.dashboard.pages import (
    NUM_CORES,
    SCHEMES,
    SIZES,
    SMALL_JOB,
    STATES,
    Jobs,
    Viewer,
    make_jobs,
    remember_browsers,
)

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SETTINGS = {"DLRM_NUM_CORES": str(NUM_CORES)}


@pytest.fixture(scope="module")
def jobs(site: Site) -> Jobs:
    return make_jobs(site.client, tomllib.loads(SMALL_JOB))


@pytest.fixture(scope="module")
def find_browser(browser: Browser, site: Site) -> Callable[[Viewer], BrowserContext]:
    return remember_browsers(lambda: make_context(browser), site.client)


@pytest.mark.parametrize("name", STATES)
def test_everybody_can_use_the_page(
    site: Site, jobs: Jobs, find_browser: Callable[[Viewer], BrowserContext], name: str
) -> None:
    state = STATES[name]
    page = find_browser(state.viewer).new_page()
    faults = note_faults(page, site)
    state.open(page, site.url, jobs)
    for size, (width, height) in reversed(SIZES.items()):
        page.set_viewport_size({"width": width, "height": height})
        # Charts are drawn anew first.
        wait_until(lambda: page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"))
        found = list_faults_of_all_schemes(page)
        # Narrow screens have one style sheet, and the size of a text is the same on all of them.
        for scheme in SCHEMES if size != "zoomed" else ():
            page.emulate_media(color_scheme=scheme)
            found += list_faults_of_one_scheme(page)
        faults += [f"{size}: {fault}" for fault in found]
    faults += list_keyboard_faults(page)
    page.close()
    assert [fault for fault in faults if not (state.refusal and re.search(state.refusal, fault))] == []
