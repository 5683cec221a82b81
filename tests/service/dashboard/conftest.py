import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from service.client import Client
from service.client.connection import ready_file_in
from service.demo.running import running_service
from tests.patience import PATIENCE_SECONDS

PATIENCE_MILLISECONDS = 1000 * PATIENCE_SECONDS
expect.set_options(timeout=PATIENCE_MILLISECONDS)
FAKE_TRAINER = Path(__file__).parents[1] / "fake_trainer"


@dataclass(frozen=True)
class Site:
    """A running service and its sign-in link, which works once."""

    url: str
    client: Client
    signin_link: str


@pytest.fixture(scope="module")
def fake_trainer(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> None:
    """Has the site of a test module start the fake trainer in the place of Python."""
    python = tmp_path_factory.mktemp("trainer") / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE_TRAINER}" "$@"\n')
    python.chmod(0o755)
    request.module.SETTINGS["DLRM_TRAINER_PYTHON"] = str(python)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A real service; a test module's SETTINGS are its environment variables."""
    state_directory = tmp_path_factory.mktemp("state")
    with running_service(state_directory, request.module.SETTINGS) as client:
        ready = json.loads(ready_file_in(state_directory).read_text())
        yield Site(client.url, client, ready["signin_link"])


@pytest.fixture(scope="module")
def session(browser: Browser, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cookies of a browser that has signed in with the link."""
    path = tmp_path_factory.mktemp("session") / "cookies.json"
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page = context.new_page()
    page.goto(site.signin_link)
    page.wait_for_url(f"{site.url}/")
    context.storage_state(path=path)
    context.close()
    return path


@pytest.fixture
def page(browser: Browser, site: Site, session: Path) -> Iterator[Page]:
    """A signed-in page, which must stay on its own site, keep to its content security policy and throw no errors."""
    context = browser.new_context(storage_state=session)
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page = context.new_page()
    faults: list[str] = []
    page.on("request", lambda request: request.url.startswith(site.url) or faults.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: message.type == "error" and faults.append(message.text))
    yield page
    context.close()
    assert faults == []
