"""A clock that is set by an hour, forward or back: no time has passed for jobs that run or wait."""

from datetime import datetime, timedelta

import pytest

from service.app import Services, create_services
from service.database import Database
from service.jobs import actions
from service.jobs.schemas import JobDetail
from service.settings import Settings
from service.store.attempt_repository import AttemptRepository
from service.store.models import Attempt, Job
from service.times import now
from tests.service.control.rounds import USER, run_until, submit
from tests.service.databases import on_both_databases

pytestmark = on_both_databases

HOUR = timedelta(hours=1)
JUMPS = pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])


class WallClock:
    """The clock of the database, which the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset = timedelta(0)
        read = Database.read_time
        monkeypatch.setattr(Database, "read_time", lambda database, session: read(database, session) + self.offset)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


@pytest.fixture
def services(settings: Settings, clock: WallClock) -> Services:
    slow = {"restart_delay_seconds": 600.0, "max_restart_delay_seconds": 600.0, "grace_period_seconds": 600.0}
    return create_services(settings.model_copy(update=slow))


def get(services: Services, *ids: str) -> list[JobDetail]:
    return [services.jobs.get(job_id, USER) for job_id in ids]


def find_seconds_left(services: Services, job_id: str, name: str) -> float:
    """Find the seconds until a time of a job by the clock as it is."""
    with services.database.read() as session:
        time: datetime = getattr(session.get_one(Job, job_id), name)
    return (time - now()).total_seconds()


@pytest.mark.parametrize(
    "jump", [pytest.param(HOUR, id="forward"), pytest.param(-HOUR, marks=pytest.mark.slow, id="back")]
)
def test_nothing_ends_starts_or_is_killed_for_a_clock_that_is_set(
    services: Services, clock: WallClock, jump: timedelta
) -> None:
    running = submit(services, deadline_seconds=1800)
    stopping = submit(services, "ignore_stop", deadline_seconds=1800)
    restarting = submit(services, "crash", deadline_seconds=1800)
    for job_id, state in ((running, "RUNNING"), (stopping, "RUNNING"), (restarting, "RECOVERING")):
        run_until(services, job_id, state)
    resources = {"workers_per_node": 4, "memory": "1GiB"}
    waiting = submit(
        services, batch={"global_size": 64}, resources=resources, deadline_seconds=1800, deadline_from="submission"
    )
    services.jobs.change(stopping, USER, actions.pause)
    services.control.run_once()
    ids = (running, stopping, restarting, waiting)
    before = [(job.state, job.num_attempts) for job in get(services, *ids)]
    assert [state for state, _ in before] == ["RUNNING", "PAUSING", "RECOVERING", "QUEUED"]
    for offset in (jump, timedelta(0)):
        clock.offset = offset
        for _ in range(2):
            services.control.run_once()
        assert [(job.state, job.num_attempts) for job in get(services, *ids)] == before
        for job_id in (running, waiting):
            assert 1500 < find_seconds_left(services, job_id, "deadline_at") < 1800
        assert 300 < find_seconds_left(services, restarting, "restarts_at") < 600


def test_a_deadline_that_has_passed_ends_a_job_whatever_the_clock_was_set_to(
    services: Services, clock: WallClock
) -> None:
    job_id = submit(services, deadline_seconds=1800)
    run_until(services, job_id, "RUNNING")
    clock.offset = -HOUR
    services.control.run_once()
    with services.database.write() as session:
        # As after half an hour.
        session.get_one(Job, job_id).deadline_at = now() - timedelta(seconds=1)
    services.control.run_once()
    assert services.jobs.get(job_id, USER).state == "RUNNING"
    with services.database.read() as session:
        [attempt] = AttemptRepository(session).list_by_job(job_id)
    assert attempt.stop_reason == "deadline_exceeded"


def test_a_service_that_starts_after_its_clock_was_set_back_waits_no_longer(
    settings: Settings, services: Services, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit(services, "crash")
    run_until(services, job_id, "RECOVERING")
    services.control.stop()
    monkeypatch.setattr("service.times._last", None)
    clock.offset = -HOUR
    again = create_services(settings)
    again.control.run_once()
    assert 0 < find_seconds_left(again, job_id, "restarts_at") < 601


@JUMPS
def test_a_jump_within_a_round_is_followed_at_the_next_one(
    services: Services, clock: WallClock, jump: timedelta
) -> None:
    """Jobs of a round are read at its begin, with the times that they had then."""
    job_id = submit(services, deadline_seconds=1800)
    run_until(services, job_id, "RUNNING")
    leadership = services.leadership
    clock.offset = jump
    leadership.renew()
    assert 1500 < find_seconds_left(services, job_id, "deadline_at") < 1800
    leadership.begin_round()
    assert 1500 < find_seconds_left(services, job_id, "deadline_at") < 1800
    with services.database.read() as session:
        attempt = session.query(Attempt).one()
    assert attempt.lease_expires_at is not None
    assert 0 < (attempt.lease_expires_at - now()).total_seconds() < 600
