"""Many jobs that may start at once, on a launcher that takes its time."""

import time
from collections import Counter

import pytest

from service.app import Services, create_services
from service.launchers.protocol import Capacity, Launch, LauncherCapacity, LaunchFiles
from service.settings import Settings
from tests.service.control.rounds import USER, submit
from tests.service.remote.reporting import SilentLauncher

NUM_JOBS = 6
START_SECONDS = 0.3


class SlowLauncher(SilentLauncher):
    """Launcher with room for all, each of whose starts takes some time."""

    def start(self, launch: Launch, files: LaunchFiles) -> None:
        time.sleep(START_SECONDS)
        super().start(launch, files)

    def capacity(self) -> LauncherCapacity:
        room = Capacity(1000, 2**50, 0)
        return LauncherCapacity(room, room)


@pytest.fixture
def services(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Services:
    monkeypatch.setattr("service.launchers.construction.LocalLauncher", SlowLauncher)
    return create_services(settings)


def submit_all(services: Services) -> list[str]:
    return [submit(services) for _ in range(NUM_JOBS)]


def count_states(services: Services, jobs: list[str]) -> Counter[str]:
    return Counter(services.jobs.get(job_id, USER).state for job_id in jobs)


@pytest.mark.slow
def test_rounds_that_start_many_jobs_look_after_those_that_run_meanwhile(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.control.scheduler.START_SECONDS", START_SECONDS)
    jobs = submit_all(services)
    services.control.run_once()
    first = count_states(services, jobs)
    assert 0 < first["QUEUED"] < NUM_JOBS
    started = NUM_JOBS - first["QUEUED"]
    services.control.run_once()
    assert count_states(services, jobs)["RUNNING"] == started
    for _ in range(NUM_JOBS):
        services.control.run_once()
    assert count_states(services, jobs) == {"RUNNING": NUM_JOBS}


def test_the_next_round_follows_at_once_where_jobs_are_left_to_start(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.control.scheduler.START_SECONDS", 0.0)
    submit_all(services)
    services.control.run_once()
    begun = time.monotonic()
    services.control.wake_up.wait(60.0)
    assert time.monotonic() - begun < 30.0


def test_starts_that_last_longer_than_a_lease_do_not_end_the_leadership(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.launchers.construction.LocalLauncher", SlowLauncher)
    monkeypatch.setattr("service.leader.leadership.LEASE_SECONDS", 4.0)
    monkeypatch.setattr("service.control.scheduler.START_SECONDS", 60.0)
    services = create_services(settings)
    jobs = submit_all(services)
    # A process may start something for 1 s after a renewal: these starts take 1.8 s.
    assert services.control.run_once()
    assert count_states(services, jobs) == {"STARTING": NUM_JOBS}
