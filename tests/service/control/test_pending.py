"""Attempts that a launcher has accepted and not started yet, as where it has to find a machine first."""

from datetime import timedelta
from typing import Any

import pytest

from service.app import Services, create_services
from service.jobs import actions
from service.jobs.service import EventQuery, Submission
from service.launchers.local import LocalLauncher
from service.launchers.protocol import Launch, LaunchFiles, LaunchName, LaunchPhase, LaunchStatus
from service.reasons import Reason
from service.settings import Settings
from service.store.models import Job
from service.times import now
from tests.service.api import make_document
from tests.service.control.rounds import USER, run_until

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


class LauncherWithQueue(LocalLauncher):
    """Local launcher that starts what it has accepted only once it has room."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.has_room = False
        self._accepted: dict[LaunchName, LaunchFiles] = {}

    def start(self, launch: Launch, files: LaunchFiles) -> None:
        self._accepted[launch.name] = files

    def describe(self, launch: Launch) -> LaunchStatus:
        if launch.name in self._accepted and not self.has_room:
            return LaunchStatus(LaunchPhase.PENDING, Reason.WAITING_FOR_GPU, "0 of 3 machines have a free GPU")
        if launch.name in self._accepted:
            super().start(launch, self._accepted.pop(launch.name))
        return super().describe(launch)

    def kill(self, launch: Launch) -> bool:
        self._accepted.pop(launch.name, None)
        return super().kill(launch)


@pytest.fixture
def services(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Services:
    monkeypatch.setattr("service.launchers.construction.LocalLauncher", LauncherWithQueue)
    return create_services(settings)


def get_launcher(services: Services) -> LauncherWithQueue:
    launcher = services.launchers["local"]
    assert isinstance(launcher, LauncherWithQueue)
    return launcher


def submit(services: Services, **changes: Any) -> str:
    """Submit a job whose attempt stays pending, and run the rounds in which that is seen."""
    job_id = services.jobs.submit(Submission(make_document("succeed_silently", **changes), USER))[0].id
    for _ in range(3):
        services.control.run_once()
    return job_id


def test_a_pending_attempt_says_what_it_waits_for_once(services: Services) -> None:
    job_id = submit(services)
    job = services.jobs.get(job_id, USER)
    assert (job.state, job.reason) == ("STARTING", "waiting_for_gpu")
    assert job.message == "0 of 3 machines have a free GPU"
    events = services.jobs.list_events(job_id, USER, EventQuery(0, 100)).items
    assert [event.message for event in events if event.kind == "repair"] == [job.message]


def test_a_pending_attempt_runs_once_there_is_a_machine(services: Services) -> None:
    job_id = submit(services)
    get_launcher(services).has_room = True
    job = run_until(services, job_id, *ENDED)
    assert (job.state, job.num_attempts) == ("SUCCEEDED", 1)


def test_a_pending_attempt_is_cancelled_without_having_run(services: Services) -> None:
    job_id = submit(services)
    services.jobs.change(job_id, USER, actions.cancel)
    job = run_until(services, job_id, *ENDED)
    assert (job.state, job.reason, job.num_attempts) == ("CANCELLED", "user_cancelled", 1)


def test_a_pending_attempt_past_its_deadline_is_taken_back(services: Services) -> None:
    job_id = submit(services, deadline_seconds=3600)
    with services.database.write() as session:
        session.get_one(Job, job_id).deadline_at = now() - timedelta(seconds=1)
    ended = run_until(services, job_id, *ENDED)
    assert (ended.state, ended.reason, ended.num_attempts) == ("FAILED", "deadline_exceeded", 1)
