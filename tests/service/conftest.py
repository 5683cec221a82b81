"""Fixtures: settings, running services and a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from service.launchers.processes import find_marked, kill_all
from service.settings import Settings
from tests.service.api import Api, make_settings, serve_api

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
]


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Settings of the service of one test. Whatever the test has started is killed afterwards."""
    test_settings = make_settings(tmp_path)
    yield test_settings
    for attempt in test_settings.runs_directory.glob("*/attempt-*"):
        kill_all(find_marked(attempt))


@pytest.fixture
def trainer_python(settings: Settings) -> Path:
    """Script that runs the fake trainer."""
    return settings.trainer_python


@pytest.fixture
def data_root(settings: Settings) -> Path:
    """Directory with two data files."""
    return Path(settings.data_roots[0])


@pytest.fixture
def api(settings: Settings) -> Iterator[Api]:
    """Service without its control loop: jobs stay as they are until a test runs a round."""
    with serve_api(settings, runs_control_loop=False) as running:
        yield running


@pytest.fixture(scope="module")
def shared_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Service without its control loop, shared by the tests of a module: they must tolerate each other's jobs."""
    with serve_api(make_settings(tmp_path_factory.mktemp("shared")), runs_control_loop=False) as running:
        yield running


@pytest.fixture
def live_api(settings: Settings) -> Iterator[Api]:
    """Service with its control loop."""
    with serve_api(settings, runs_control_loop=True) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()
