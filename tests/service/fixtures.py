"""Fixtures: databases, settings, running services and a browser."""

import logging
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from service.database import Database
from service.database.migrate import migrate
from service.launchers.processes import find_marked, kill_all
from service.settings import Settings
from tests.service.api import Api, make_settings, serve_api, write_data, write_fake_python
from tests.service.databases import KINDS, lend_database
from tests.service.postgres import IS_INSTALLED, PostgresServer, run_postgres

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave PostgreSQL to `make test-all`, except for tests that are about it or marked for both kinds."""
    call = getattr(item, "callspec", None)
    is_about_it = any(mark.args[0] == "database_kind" for mark in item.iter_markers("parametrize"))
    is_chosen = is_about_it or item.get_closest_marker("on_both_databases") is not None
    if call and call.params.get("database_kind") == "postgresql" and not is_chosen:
        item.add_marker("slow")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """PostgreSQL server of this test process, started for the first test that needs it."""
    if not IS_INSTALLED:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with run_postgres() as server, pytest.MonkeyPatch.context() as patch:
        server.create_template()
        # A process that gives its leadership up waits for as long.
        patch.setattr("service.database.notifications.POLL_SECONDS", 0.05)
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SQLite file with all tables, of which those of tests are copies."""
    path = tmp_path_factory.mktemp("template") / "service.sqlite3"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    path.chmod(0o600)
    return path


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Restore the level of the log: a service in this process would log to the output of later tests."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.fixture(autouse=True)
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each test with the clock of this machine, whatever database an earlier one has followed."""
    monkeypatch.setattr("service.times._last", None)


@pytest.fixture(autouse=True)
def rounds_without_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one round do all that is to be done: on a busy machine one start or removal may take its whole time."""
    monkeypatch.setattr("service.control.scheduler.START_SECONDS", 600.0)


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let streams look for changes after a moment: what they send does not depend on how often they look."""
    monkeypatch.setattr("service.streams.feed.TICK_SECONDS", 0.05)
    monkeypatch.setattr("service.streams.feed.POLL_SECONDS", 0.2)


@pytest.fixture(scope="module", params=KINDS)
def database_kind(request: pytest.FixtureRequest) -> str:
    """Kind of database that the tests run on, one after the other."""
    return request.param


@pytest.fixture
def settings(tmp_path: Path, database_kind: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Settings of the service of one test. Whatever the test has started is killed afterwards."""
    with lend_settings(tmp_path, database_kind, request) as test_settings:
        yield test_settings


@pytest.fixture
def trainer_python(tmp_path: Path) -> Path:
    """Script that runs the fake trainer."""
    return write_fake_python(tmp_path / "python")


@pytest.fixture
def data_root(tmp_path: Path) -> Path:
    """Directory with two data files, which `settings` names."""
    return write_data(tmp_path / "data")


@pytest.fixture
def api(settings: Settings) -> Iterator[Api]:
    """Service without its control loop: jobs stay as they are until a test runs a round."""
    with serve_api(settings, runs_control_loop=False) as running:
        yield running


@pytest.fixture(scope="module")
def shared_api(
    database_kind: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Api]:
    """Service without its control loop, shared by the tests of a module: they must tolerate each other's jobs."""
    with (
        lend_settings(tmp_path_factory.mktemp("shared"), database_kind, request) as settings,
        serve_api(settings, runs_control_loop=False) as running,
    ):
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


@contextmanager
def lend_settings(directory: Path, database_kind: str, request: pytest.FixtureRequest) -> Generator[Settings]:
    """Lend settings with a new database; at the end kill whatever was started with them."""
    with lend_database(database_kind, directory / "state", request) as url:
        settings = make_settings(directory, url)
        yield settings
        for attempt in settings.runs_directory.glob("*/attempt-*"):
            kill_all(find_marked(attempt))
