"""Leadership: who has it, who gets it, and what its loss forbids. Each test uses a real database of each kind."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import text

from service.capacity.known import KnownCapacity, dump_capacities, parse_capacities
from service.database import Database
from service.launchers.protocol import Capacity, LauncherCapacity
from service.leader.advisory_lock import AdvisoryLock
from service.leader.leadership import Leadership, LeadershipLostError, make_lock
from service.leader.lock import LOCK_KEY
from service.store.models import Attempt, Job
from service.times import now
from tests.patience import wait_until
from tests.service.databases import on_both_databases

pytestmark = on_both_databases

MakeLeadership = Callable[[], Leadership]
TOTAL = Capacity(4, 4 * 2**30, 0)


@pytest.fixture
def make_leadership(database: Database) -> Iterator[MakeLeadership]:
    """Function that makes the leadership of one more process of the service."""
    made: list[Leadership] = []

    def make() -> Leadership:
        leadership = Leadership(database, make_lock(database, lambda: None), 60.0, lambda: {})
        # Another process, of another machine.
        leadership.owner = f"machine-{len(made)}"
        made.append(leadership)
        return leadership

    yield make
    for leadership in made:
        leadership.resign()


def add_attempt(directory: Path, leadership: Leadership) -> str:
    """Add a job with an attempt that is leased by `leadership`, and return the id of the attempt."""
    with leadership.write() as session:
        lease = leadership.make_lease()
        job_id = f"job_{directory.name}"
        session.add(make_job(job_id, directory))
        session.flush()
        attempt = Attempt(
            id=f"att_{directory.name}",
            job_id=job_id,
            number=1,
            state="RUNNING",
            token_hash="",
            started_at=now(),
            lease_owner=lease.owner,
            lease_token=lease.token,
            lease_expires_at=lease.expires_at,
        )
        session.add(attempt)
    return attempt.id


def make_job(job_id: str, directory: Path) -> Job:
    return Job(
        id=job_id,
        name="leased",
        priority=0,
        state="RUNNING",
        reason="process_started",
        message="",
        created_at=now(),
        created_by="laptop",
        owner="team",
        num_attempts=1,
        world_size=1,
        num_cores=1,
        memory_bytes=2**30,
        num_gpus=0,
        progress={},
        run_directory=str(directory),
    )


def end_connection_of_leader(database: Database) -> None:
    """End the connection that holds the advisory lock, as the server does when it restarts."""
    query = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = :low"
    with database.write() as session:
        assert session.execute(text(query), {"low": LOCK_KEY & 0xFFFFFFFF}).all() == [(True,)]


def test_of_many_processes_one_leads(database: Database, make_leadership: MakeLeadership) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite has one process")
    leaderships = [make_leadership() for _ in range(4)]
    assert [leadership.acquire() for leadership in leaderships] == [True, False, False, False]
    assert [leadership.acquire() for leadership in leaderships] == [True, False, False, False]
    leaderships[0].resign()
    assert [leadership.acquire() for leadership in leaderships[1:]] == [True, False, False]


def test_a_leader_whose_connection_has_ended_leads_no_longer(
    database: Database, make_leadership: MakeLeadership
) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite needs no connection to lead")
    first, second = make_leadership(), make_leadership()
    assert first.acquire()
    end_connection_of_leader(database)
    wait_until(lambda: not first.is_held)
    assert second.acquire()
    assert not first.acquire()


def test_a_process_that_led_before_another_can_write_nothing(make_leadership: MakeLeadership) -> None:
    first, second = make_leadership(), make_leadership()
    assert first.acquire()
    first._lock.release()  # as by a network that is cut, before the process notices
    assert second.acquire()
    with pytest.raises(LeadershipLostError), first.write():
        pytest.fail("a process that does not lead got a transaction")
    with second.write():
        pass


def test_no_process_becomes_leader_while_the_leader_writes(make_leadership: MakeLeadership) -> None:
    first, second = make_leadership(), make_leadership()
    assert first.acquire()
    order: list[str] = []
    with first.write():
        first._lock.release()
        thread = threading.Thread(target=lambda: (second.acquire(), order.append("elected")))
        thread.start()
        thread.join(0.3)
        order.append("written")
    thread.join()
    assert order == ["written", "elected"]


def test_attempts_of_a_leader_that_is_away_are_adopted_when_their_lease_is_over(
    database: Database, make_leadership: MakeLeadership, tmp_path: Path
) -> None:
    first, second = make_leadership(), make_leadership()
    assert first.acquire()
    attempt_id = add_attempt(tmp_path, first)
    first._lock.release()
    assert second.acquire()
    second._ended_owner = None  # that of SQLite has ended, since there is one process
    assert second.renew() == []
    with database.read() as session:
        assert not second.has_lease(session.get_one(Attempt, attempt_id))
    with database.write() as session:
        session.get_one(Attempt, attempt_id).lease_expires_at = now() - timedelta(seconds=1)
    assert [attempt.id for attempt in second.renew()] == [attempt_id]
    with database.read() as session:
        assert second.has_lease(session.get_one(Attempt, attempt_id))
        assert not first.has_lease(session.get_one(Attempt, attempt_id))


def test_attempts_of_a_leader_that_resigns_are_adopted_at_once(make_leadership: MakeLeadership, tmp_path: Path) -> None:
    first, second = make_leadership(), make_leadership()
    assert first.acquire()
    attempt_id = add_attempt(tmp_path, first)
    first.resign()
    assert second.acquire()
    assert [attempt.id for attempt in second.renew()] == [attempt_id]


def test_a_leader_that_could_not_renew_its_leases_starts_nothing(
    make_leadership: MakeLeadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    leadership = make_leadership()
    assert leadership.acquire()
    leadership.renew()
    leadership.check_lease()
    monkeypatch.setattr("service.leader.leadership.time.monotonic", lambda: 10.0**9)
    with pytest.raises(LeadershipLostError):
        leadership.check_lease()


def test_a_notification_wakes_the_leader(database: Database) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite has one process")
    is_woken = threading.Event()
    leadership = Leadership(database, make_lock(database, is_woken.set), 60.0, lambda: {})
    assert leadership.acquire()
    database.notify("dlrm_control")
    assert is_woken.wait(10)
    leadership.resign()


def test_a_leader_that_makes_no_progress_gives_its_lock_up(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite has one process")
    stuck, other = (Leadership(database, make_lock(database, lambda: None), 60.0, lambda: {}) for _ in range(2))
    seconds = 0.0
    monkeypatch.setattr("service.leader.leadership.time", SimpleNamespace(monotonic=lambda: seconds))
    assert stuck.acquire()
    assert not stuck.is_stuck
    seconds = stuck.stuck_seconds + 1.0
    wait_until(lambda: not stuck.is_held)
    assert stuck.is_stuck
    assert other.acquire()
    with pytest.raises(LeadershipLostError):
        stuck.renew()
    assert not stuck.acquire()
    assert not stuck.is_stuck
    other.resign()


def test_a_leader_that_renews_its_leases_keeps_its_lock(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    leadership = Leadership(database, make_lock(database, lambda: None), 60.0, lambda: {})
    seconds = 0.0
    monkeypatch.setattr("service.leader.leadership.time", SimpleNamespace(monotonic=lambda: seconds))
    assert leadership.acquire()
    for _ in range(3):
        seconds += 0.75 * leadership.stuck_seconds
        leadership.renew()
        assert not leadership.is_stuck
    assert leadership.is_held
    leadership.resign()


class StoppedLock(AdvisoryLock):
    """Lock of a process whose threads are all stopped."""

    def _listen(self, connection: psycopg.Connection, _: Callable[[], bool]) -> None:
        self._is_released.wait()
        connection.close()


def test_a_follower_ends_the_hold_of_a_leader_that_is_stopped(database: Database) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite has one process")
    stopped = Leadership(database, StoppedLock(database, lambda: None), 0.1, lambda: {})
    follower = Leadership(database, make_lock(database, lambda: None), 0.1, lambda: {})
    assert stopped.acquire()
    wait_until(follower.acquire)
    with pytest.raises(LeadershipLostError), stopped.write():
        pytest.fail("a process that does not lead got a transaction")
    stopped.resign()
    follower.resign()


def test_a_process_that_has_just_become_the_leader_is_left_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the leader still says when the one before renewed its leases."""
    if database.is_sqlite:
        pytest.skip("SQLite has one process")
    # Its threads rest: the new leader would find itself stuck at the later time, which is meant for the follower alone.
    new = Leadership(database, StoppedLock(database, lambda: None), 60.0, lambda: {})
    follower = Leadership(database, make_lock(database, lambda: None), 60.0, lambda: {})
    assert new.acquire()
    with database.write() as session:
        session.execute(text("UPDATE leadership SET renewed_at = renewed_at - interval '1 hour'"))
    assert not follower.acquire()
    later = time.monotonic() + 130.0
    with monkeypatch.context() as patch:
        patch.setattr("service.leader.leadership.time", SimpleNamespace(monotonic=lambda: later))
        assert not follower.acquire()
    new.renew()
    assert new.is_held
    assert not follower.acquire()
    new.resign()


def test_every_process_follows_the_clock_of_the_database(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    if database.is_sqlite:
        pytest.skip("the clock of SQLite is that of the machine")
    leader, follower = (Leadership(database, make_lock(database, lambda: None), 60.0, lambda: {}) for _ in range(2))
    assert leader.acquire()
    monkeypatch.setattr("service.times._last", None)
    monkeypatch.setattr("service.times.read_clock", lambda: datetime.now(UTC) + timedelta(hours=1))
    assert not follower.acquire()
    assert abs(now() - datetime.now(UTC)) < timedelta(minutes=10)
    leader.resign()


def test_a_leader_tells_its_capacities_and_whether_they_have_changed(database: Database) -> None:
    capacities = {"local": LauncherCapacity(TOTAL, TOTAL), "kubernetes": None}
    leadership = Leadership(database, make_lock(database, lambda: None), 60.0, lambda: dump_capacities(capacities))
    own = {"local": LauncherCapacity(Capacity(64, 2**40, 8), Capacity(32, 2**39, 4))}
    known = KnownCapacity(database, lambda: own)
    assert known.read() == own
    assert leadership.acquire()
    assert known.read() == capacities
    capacities = own
    leadership.renew()
    assert known.read() == capacities
    leadership.resign()
    assert known.read() == capacities


def test_the_capacity_that_an_earlier_version_has_told_is_that_of_its_one_launcher() -> None:
    told = {"num_cores": 2, "memory_bytes": 2**30, "num_gpus": 0}
    assert parse_capacities(told) == {"local": LauncherCapacity(Capacity(2, 2**30, 0), Capacity(2, 2**30, 0))}
