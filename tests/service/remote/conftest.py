"""Fixtures: a service whose launcher shares no disk with it, and an attempt of it that a test reports for."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from service.settings import Settings
from tests.service.api import Api, serve_api
from tests.service.fixtures import lend_settings
from tests.service.remote.reporting import Attempt, SilentLauncher, end_all_jobs, start_attempt


@pytest.fixture(scope="module")
def api(database_kind: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Api]:
    """Service without its control loop, shared by the tests of a file: each has a job of its own."""
    lent: AbstractContextManager[Settings] = lend_settings(tmp_path_factory.mktemp("remote"), database_kind, request)
    with pytest.MonkeyPatch.context() as patch, lent as settings:
        patch.setattr("service.launchers.construction.LocalLauncher", SilentLauncher)
        with serve_api(settings, runs_control_loop=False) as running:
            yield running


@pytest.fixture
def launcher(api: Api) -> Iterator[SilentLauncher]:
    """The launcher of that service. All jobs are ended after the test."""
    launcher = api.services.launchers["local"]
    assert isinstance(launcher, SilentLauncher)
    yield launcher
    end_all_jobs(api, launcher)


@pytest.fixture
def attempt(api: Api, launcher: SilentLauncher) -> Attempt:
    return start_attempt(api, launcher)
