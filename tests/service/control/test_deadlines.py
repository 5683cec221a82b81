"""Deadlines that count from the submission of a job, not from its first start."""

from datetime import UTC, datetime, timedelta

import pytest

from service.app import Services, create_services
from service.jobs import actions
from service.launchers.protocol import Launch, LaunchFiles
from service.settings import Settings
from service.store.models import Job, JobDocument
from tests.service.control.rounds import USER, run_until, submit
from tests.service.remote.reporting import SilentLauncher


@pytest.fixture
def services(settings: Settings) -> Services:
    return create_services(settings)


def fill_the_machine(services: Services) -> None:
    resources = {"workers_per_node": 4, "memory": "1GiB"}
    run_until(services, submit(services, batch={"global_size": 64}, resources=resources), "RUNNING")


def make_older(services: Services, job_id: str, seconds: float) -> None:
    with services.database.write() as session:
        job = session.get_one(Job, job_id)
        created_at = datetime.now(UTC) - timedelta(seconds=seconds)
        if job.deadline_at is not None:
            job.deadline_at -= job.created_at - created_at
        job.created_at = created_at


@pytest.mark.parametrize("is_held", [False, True])
def test_a_deadline_from_the_submission_ends_a_job_that_waits(services: Services, *, is_held: bool) -> None:
    fill_the_machine(services)
    job_id = submit(services, deadline_seconds=3000, deadline_from="submission")
    if is_held:
        services.jobs.change(job_id, USER, actions.hold)
    make_older(services, job_id, 2900)
    services.control.run_once()
    assert services.jobs.get(job_id, USER).state == "QUEUED"
    make_older(services, job_id, 3001)
    services.control.run_once()
    job = services.jobs.get(job_id, USER)
    assert (job.state, job.reason, job.num_attempts) == ("FAILED", "deadline_exceeded", 0)
    assert job.message == "deadline_seconds = 3000 passed while the job waited"


def test_a_deadline_does_not_include_the_wait_unless_asked(services: Services) -> None:
    fill_the_machine(services)
    job_id = submit(services, deadline_seconds=3000)
    make_older(services, job_id, 3001)
    services.control.run_once()
    assert services.jobs.get(job_id, USER).state == "QUEUED"


def test_a_job_of_an_earlier_version_has_its_deadline_from_the_start(services: Services) -> None:
    job_id = submit(services, deadline_seconds=3000)
    with services.database.write() as session:
        document = session.get_one(JobDocument, job_id)
        document.spec = {name: value for name, value in document.spec.items() if name != "deadline_from"}
    make_older(services, job_id, 3001)
    run_until(services, job_id, "RUNNING")


class DeafLauncher(SilentLauncher):
    """Launcher each of whose starts gets lost."""

    def start(self, launch: Launch, files: LaunchFiles) -> None:
        """Do nothing."""


def test_a_job_whose_attempt_cannot_be_started_fails_when_its_deadline_has_passed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.launchers.construction.LocalLauncher", DeafLauncher)
    services = create_services(settings)
    job_id = submit(services, deadline_seconds=100, deadline_from="submission")
    for _ in range(3):
        services.control.run_once()
    assert services.jobs.get(job_id, USER).state == "STARTING"
    make_older(services, job_id, 101)
    job = run_until(services, job_id, "FAILED")
    assert (job.reason, "before the attempt could be started" in job.message) == ("deadline_exceeded", True)
