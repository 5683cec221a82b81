"""Leadership of one process over the jobs of a service, and the guard of everything that it writes."""

import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from hostinfo.process_identity import ProcessIdentity
from service.database import Database
from service.ids import new_id
from service.leader.lock import LOCK_KEY, LeaderLock, SoleProcessLock
from service.leader.repository import LeaderRepository, Lease, move_times
from service.store.models import Attempt
from service.times import Comparison, compare_clock, follow_clock, now

log = structlog.get_logger(__name__)

LEASE_SECONDS = 10.0
"""Seconds that an attempt belongs to a leader after the last renewal of its lease. A new leader acts on it only
afterwards."""
LEASE_ROUNDS = 5
"""Number of rounds of the control loop that a lease lasts at least."""
MARGIN_SECONDS = 3.0
"""Seconds before the end of a lease from which on its holder starts nothing any more."""
STUCK_LEASES = 2
"""Number of leases after which a process counts as stuck if it has renewed none. Leases are renewed in every round, and
where half of their time is over in the middle of one; a single job holds a round up for seconds at most."""


class LeadershipLostError(Exception):
    """Error raised where another process has become the leader, or may have become it."""


class Leadership:
    """Right of this process to start, watch and end attempts.

    At most one process holds the lock of the database. A process that has lost it without noticing can do no harm:
    what it writes is refused by its token, and it starts nothing beyond the time of its leases.
    """

    def __init__(
        self, database: Database, lock: LeaderLock, lease_seconds: float, get_capacity: Callable[[], dict[str, Any]]
    ) -> None:
        """Publish what `get_capacity` returns: resources that jobs may occupy while this process leads.

        As JSON values, and without waiting for anything.
        """
        self._database = database
        self._lock = lock
        self._lease_seconds = lease_seconds
        self._get_capacity = get_capacity
        self.stuck_seconds = STUCK_LEASES * lease_seconds
        self._progress_at: float | None = None
        self._token: int | None = None
        self._ended_owner: str | None = None
        self._safe_until = 0.0
        self._seen_renewal: tuple[datetime, float] | None = None
        """Last renewal of another leader, and when this process has first seen it, by the monotonic clock."""
        self.owner = _name_process()

    @property
    def is_held(self) -> bool:
        return self._token is not None and self._lock.is_held

    @property
    def is_stuck(self) -> bool:
        """Whether the control loop runs and has made no progress for too long: no renewal, no try to lead."""
        return self._progress_at is not None and time.monotonic() - self._progress_at > self.stuck_seconds

    def acquire(self) -> bool:
        """Make this process the leader, unless another one is. Return whether this process leads."""
        if self.is_held:
            return True
        self._token = None
        self._progress_at = time.monotonic()
        if not self._lock.try_acquire(lambda: self.is_stuck):
            self._follow()
            return False
        with self._database.write() as session:
            comparison = self._compare_clock(session)
            follow_clock(comparison)
            self._move_times(session, LeaderRepository(session).find_missed_jump(comparison))
            self._token, before = LeaderRepository(session).begin_term(self.owner, self._get_capacity(), now())
        self._ended_owner = before if self._database.is_sqlite or _has_ended(before) else None
        log.info("leader_elected", owner=self.owner, token=self._token)
        return True

    def resign(self) -> None:
        """Let another process become the leader at once; attempts continue to run."""
        if self._token is not None:
            try:
                with self.write() as session:
                    LeaderRepository(session).expire(self._token, now())
            except (LeadershipLostError, DBAPIError) as error:
                log.info("leases_not_released", error=str(error).partition("\n")[0])
        self._token = None
        self._lock.release()

    def begin_round(self) -> list[Attempt]:
        """Follow the clock of the database, and renew the leases of this process.

        The times that jobs wait for move by as much as the clock was set. Not within a round, where jobs are read
        already. Returns the attempts that are adopted. Raises LeadershipLostError.
        """
        with self.write() as session:
            comparison = self._compare_clock(session)
            self._move_times(session, comparison.jump)
        # Once the times are written: a jump that is followed is not seen again.
        follow_clock(comparison)
        return self.renew()

    def renew(self) -> list[Attempt]:
        """Renew the leases of this process; adopt and return attempts whose leases are over.

        Raises LeadershipLostError.
        """
        begun = time.monotonic()
        with self.write() as session:
            lease = self.make_lease()
            leaders = LeaderRepository(session)
            leaders.renew(lease, self._get_capacity(), now())
            adopted = leaders.adopt(lease, now(), ended_owner=self._ended_owner)
        self._safe_until = begun + self._lease_seconds - MARGIN_SECONDS
        self._progress_at = time.monotonic()
        return adopted

    def renew_if_due(self) -> None:
        """Renew the leases where half of their time is over: a round over many jobs may last longer than they do.

        Raises LeadershipLostError.
        """
        if time.monotonic() > self._safe_until - self._lease_seconds / 2:
            self.renew()

    def make_lease(self) -> Lease:
        """Make a lease that begins now. Raises LeadershipLostError."""
        return Lease(self.owner, self._get_token(), now() + timedelta(seconds=self._lease_seconds))

    def has_lease(self, attempt: Attempt) -> bool:
        """Whether this process may act on `attempt`."""
        return attempt.lease_token == self._token

    def check_lease(self) -> None:
        """Raise LeadershipLostError if the leases of this process may be over before what it starts has begun."""
        if not self.is_held or time.monotonic() > self._safe_until:
            raise LeadershipLostError("the leases of this process may be over")

    @contextmanager
    def write(self) -> Generator[Session]:
        """Open a session in a transaction during which no other process becomes the leader.

        Raises LeadershipLostError if this process is not the leader any more.
        """
        token = self._get_token()
        with self._database.write() as session:
            if LeaderRepository(session).lock_token() != token:
                self._token = None
                raise LeadershipLostError("another process has become the leader")
            yield session

    def _follow(self) -> None:
        """Follow the clock of the database, and end the hold of a leader that is stopped as a whole.

        Its lock would never be free: the kernel answers for it as long as its machine runs.
        """
        with self._database.read() as session:
            follow_clock(self._compare_clock(session))
            leader = LeaderRepository(session).get()
        if leader is None or leader.renewed_at is None:
            return
        if self._seen_renewal is None or self._seen_renewal[0] != leader.renewed_at:
            self._seen_renewal = leader.renewed_at, time.monotonic()
        if time.monotonic() - self._seen_renewal[1] <= self.stuck_seconds:
            return
        with self._database.write() as session:
            ended = LeaderRepository(session).end_stopped_holders(LOCK_KEY, leader.renewed_at, self.stuck_seconds)
        for backend in ended:
            log.warning("stopped_leader_ended", owner=leader.owner, renewed_at=str(leader.renewed_at), backend=backend)

    def _move_times(self, session: Session, jump: timedelta) -> None:
        if jump:
            log.warning("clock_was_set", seconds=jump.total_seconds())
            move_times(session, jump)

    def _compare_clock(self, session: Session) -> Comparison:
        return compare_clock(lambda: self._database.read_time(session))

    def _get_token(self) -> int:
        if self._token is None:
            raise LeadershipLostError("this process is not the leader")
        return self._token


def make_leadership(
    database: Database, round_seconds: float, get_capacity: Callable[[], dict[str, Any]], on_notify: Callable[[], None]
) -> Leadership:
    """Make the leadership of a process whose control loop makes a round every `round_seconds`.

    get_capacity: see `Leadership`. on_notify: see `make_lock`.
    """
    lease_seconds = max(LEASE_SECONDS, LEASE_ROUNDS * round_seconds)
    return Leadership(database, make_lock(database, on_notify), lease_seconds, get_capacity)


def find_service_id(database: Database) -> str:
    """Return the identity of the service, which all processes on its database have in common."""
    try:
        with database.write() as session:
            return LeaderRepository(session).get_or_add(new_id("svc"), now()).service_id
    except IntegrityError:
        # Another process was faster.
        with database.read() as session:
            return LeaderRepository(session).get_or_add(new_id("svc"), now()).service_id


def _name_process() -> str:
    """Return a name of this process: its machine, and its identity there."""
    identity = ProcessIdentity.of_self()
    return f"{socket.gethostname()}:{identity.space}:{identity.pid}:{identity.start_ticks}"


def _has_ended(owner: str | None) -> bool:
    """Whether the process that `_name_process` named so is known to have ended; False if it cannot be seen."""
    _, *parts = (owner or "").split(":")
    if len(parts) != 3 or not parts[1].isdecimal() or not parts[2].isdecimal():
        return False
    return ProcessIdentity(parts[0], int(parts[1]), int(parts[2])).is_known_to_have_ended()


def make_lock(database: Database, on_notify: Callable[[], None]) -> LeaderLock:
    """Make the lock of this service. on_notify: called, in another thread, when a process wakes the leader."""
    if database.is_sqlite:
        return SoleProcessLock()
    # Imported here: the driver is an optional package.
    from service.leader.advisory_lock import AdvisoryLock

    return AdvisoryLock(database, on_notify)
