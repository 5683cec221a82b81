"""Fixtures: a running service, and a signed-in page of a browser."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from service.access.principal import Role
from service.client import Client
from service.settings import Settings
from tests.patience import PATIENCE_SECONDS
from tests.service.api import serve_api, write_fake_python
from tests.service.dashboard.pages import end_jobs
from tests.service.databases import lend_database

PATIENCE_MILLISECONDS = 1000 * PATIENCE_SECONDS
expect.set_options(timeout=PATIENCE_MILLISECONDS)
OFTEN = "const wait = setInterval; window.setInterval = (work, milliseconds) => wait(work, milliseconds / 4);"
"""Script that has pages ask for what is new four times as often."""


@dataclass(frozen=True)
class Site:
    """Address of a running service, a client of it, and its sign-in link, which works once."""

    url: str
    client: Client
    signin_link: str


@pytest.fixture(scope="module")
def fake_trainer(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> None:
    """Let the service of a test module run the fake trainer."""
    python = write_fake_python(tmp_path_factory.mktemp("trainer") / "python")
    request.module.SETTINGS["DLRM_TRAINER_PYTHON"] = str(python)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Real service; the SETTINGS of the test module are its environment variables. It ends its jobs at the end.

    It runs in the process of the tests, which has imported it already.
    """
    state_directory = tmp_path_factory.mktemp("state")
    with lend_database("sqlite", state_directory, request) as url, pytest.MonkeyPatch.context() as patch:
        for name, value in request.module.SETTINGS.items():
            patch.setenv(name, value)
        settings = Settings(state_directory=state_directory, database_url=url, port=0)
        with serve_api(settings, runs_control_loop=True) as api:
            admin = api.services.keys.create("admin", Role.ADMIN, owner="admin")
            with Client(api.url, admin.key) as client:
                link = client.create_login_link("admin", owner="admin")
                yield Site(api.url, client, f"{api.url}/signin#token={link.token}")
                end_jobs(client)


@pytest.fixture(scope="module")
def cookie_file(browser: Browser, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File with the cookies of a browser that has signed in with the link."""
    path = tmp_path_factory.mktemp("session") / "cookies.json"
    context = make_context(browser)
    page = context.new_page()
    page.goto(site.signin_link)
    page.wait_for_url(f"{site.url}/")
    context.storage_state(path=path)
    context.close()
    return path


def make_context(browser: Browser, cookie_file: Path | None = None) -> BrowserContext:
    """Make what a user's browser is: cookies and files of its own, and pages that are asked for often."""
    context = browser.new_context(storage_state=cookie_file)
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    context.add_init_script(OFTEN)
    return context


def note_faults(page: Page, site: Site) -> list[str]:
    """Return the list to which requests to other sites, errors and warnings of a page are added from now on.

    Requests that fail, and what the content security policy forbids, are errors of the console.
    """
    faults: list[str] = []
    page.on("request", lambda request: faults.extend([] if request.url.startswith(site.url) else [request.url]))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.extend([message.text] if message.type in ("error", "warning") else []))
    return faults


@pytest.fixture(scope="module")
def signed_in(browser: Browser, cookie_file: Path) -> BrowserContext:
    """Browser that has signed in. Tests of a file have pages of their own in it, which load its files once."""
    return make_context(browser, cookie_file)


@pytest.fixture
def page(signed_in: BrowserContext, site: Site) -> Iterator[Page]:
    """Signed-in page, which must have no faults."""
    page = signed_in.new_page()
    faults = note_faults(page, site)
    yield page
    page.close()
    assert faults == []


@pytest.fixture
def failing_page(browser: Browser, cookie_file: Path) -> Iterator[Page]:
    """Signed-in page whose requests may fail, though its scripts may not."""
    context = make_context(browser, cookie_file)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []
