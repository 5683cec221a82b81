"""Watchers of streams: the newest state of a job, its events, and the changed jobs of a list, until they are sent."""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
"""A job as JSON values, shared by all streams that send it."""

MAX_LEFT = 10_000
"""Jobs that one stream remembers as out of its list. Further ones may be said to be gone once more."""
MAX_WAITING_EVENTS = 200
"""Events that wait for a client. One that is further behind gets them from the database, at its own pace."""
MAX_WAITING_JOBS = 1000
"""Changed jobs that wait for a client. One that is further behind reads the list again."""


@dataclass(frozen=True)
class Gone:
    """A job that was deleted."""

    owner: str | None
    """Owner of the job; None if the row of the job is removed already."""


@dataclass(eq=False)
class Watcher:
    """Things that a stream has yet to send. Only the event loop touches them."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once there is something to send, or the stream should end."""
    is_closed: bool = False
    """Whether the service stops, so that the stream should end."""

    def close(self) -> None:
        self.is_closed = True
        self.wake.set()


@dataclass(eq=False)
class JobWatcher(Watcher):
    """Things that the stream of one job has yet to send."""

    events: deque[tuple[int, str]] = field(default_factory=deque[tuple[int, str]])
    """Ids and JSON of new events, in their order."""
    is_behind: bool = True
    """Whether events are missing in `events`, so that the stream must read them from the database."""
    job: Row | None = None
    """Newest state of the job; a newer one replaces one that was not sent. None: nothing new."""
    log_version: object = None
    """Changes whenever the log of the job has more."""
    is_gone: bool = False
    """Whether the job was deleted."""

    def add_events(self, events: list[tuple[int, str]]) -> None:
        if not self.is_behind:
            self.events += events
            if len(self.events) > MAX_WAITING_EVENTS:
                self.events.clear()
                self.is_behind = True
        self.wake.set()


@dataclass(frozen=True)
class ListFilter:
    """Conditions on the jobs of a stream; None and empty ones restrict nothing."""

    states: frozenset[str] = frozenset()
    owner: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    visible_owner: str | None = None
    """Only owner whose jobs the receiver may know of; None if it may know of all."""

    def may_see(self, job: Row | Gone) -> bool:
        return self.visible_owner in (None, job.owner if isinstance(job, Gone) else job["owner"])

    def matches(self, job: Row) -> bool:
        """Whether a job that the receiver may know of is one of the list."""
        return (
            (not self.states or job["state"] in self.states)
            and self.owner in (None, job["owner"])
            and all(job["labels"].get(name) == value for name, value in self.labels)
        )


@dataclass(eq=False)
class ListWatcher(Watcher):
    """Things that the stream of a list has yet to send."""

    chosen: ListFilter = ListFilter()
    jobs: dict[str, Row | None] = field(default_factory=dict[str, Row | None])
    """Newest state of each job that has changed; None for one that was deleted, or left the list."""
    is_reset: bool = False
    """Whether changes are missing in `jobs`, so that the client must read the list."""

    left: set[str] = field(default_factory=set[str])
    """Ids of jobs that the client knows to be out of the list."""

    def add_jobs(self, jobs: Mapping[str, Row | Gone]) -> None:
        """Add jobs that have changed, as far as the receiver may know of them."""
        for job_id, job in jobs.items():
            if job == Gone(None) and self.chosen.visible_owner is not None:
                # Nobody hears the id of a job that may have been another owner's.
                self.reset()
                return
            if not self.chosen.may_see(job):
                continue
            if not isinstance(job, Gone) and self.chosen.matches(job):
                self.jobs[job_id] = job
                self.left.discard(job_id)
            elif job_id not in self.left:
                self.jobs[job_id] = None
                self.left.add(job_id)
        if len(self.left) > MAX_LEFT:
            self.left.clear()
        if len(self.jobs) > MAX_WAITING_JOBS:
            self.reset()
        self.wake.set()

    def reset(self) -> None:
        self.jobs.clear()
        self.is_reset = True
        self.wake.set()
