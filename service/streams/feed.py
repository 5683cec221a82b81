"""Feed of changes: reads once for all streams of this process what has changed, and hands it to each."""

import asyncio
import secrets
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import structlog

from service.http.limits import Threads
from service.streams.reader import ChangeReader, Changes
from service.streams.watchers import JobWatcher, ListFilter, ListWatcher, Watcher

TICK_SECONDS = 1.0
"""Shortest time from one look at changes to the next, and so between two states of one job."""
MAX_SHARE = 0.2
"""Largest share of a thread's time that looks take: there is more time between long ones."""
POLL_SECONDS = 2.0
"""Longest time between two looks while somebody waits: logs grow without a change of any row."""
LINGER_SECONDS = 60.0
"""Time for which changes are still remembered after the last stream has ended: clients come back."""
MAX_JOBS = 200
"""Changed jobs that one look reads for lists; of more, clients read the list again."""
MAX_REMEMBERED = 10_000
"""Largest number of changes that are remembered for returning clients."""

STREAMS = Threads("streams", 2)
"""Threads that read what streams send."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Place:
    """Place in the changes of one process, after a number of looks at them."""

    epoch: str
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.number}"


@dataclass
class _Memory:
    """Changes that returning clients may have missed."""

    epoch: str = field(default_factory=lambda: secrets.token_hex(6))
    number: int = 0
    first: int = 0
    """Place after which every change is remembered."""
    jobs: deque[tuple[int, str]] = field(default_factory=deque[tuple[int, str]])

    def add(self, job_ids: Iterable[str]) -> None:
        self.number += 1
        self.jobs += [(self.number, job_id) for job_id in job_ids]
        while len(self.jobs) > MAX_REMEMBERED:
            self.first, _ = self.jobs.popleft()

    def list_since(self, place: Place) -> set[str] | None:
        """List the jobs that changed after a place; None if that is not known."""
        if place.epoch != self.epoch or not self.first <= place.number <= self.number:
            return None
        return {job_id for number, job_id in self.jobs if number > place.number}


class Feed:
    """Feed of all streams of one process, in one event loop. Without streams it reads nothing."""

    def __init__(self, reader: ChangeReader) -> None:
        self._reader = reader
        self._job_watchers: defaultdict[str, set[JobWatcher]] = defaultdict(set)
        self._list_watchers: set[ListWatcher] = set()
        self._lock = threading.Lock()
        self._noted: set[str] = set()
        """Jobs that may have changed; other threads add to it."""
        self._is_all_noted = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._memory = _Memory()
        self._starting = asyncio.Lock()
        self._position = 0
        """Id of the newest event that was read."""
        self._watched_at = 0.0
        """Time of the event loop at which a stream was open, or about to be, last."""
        self._is_closed = False

    @property
    def place(self) -> Place:
        return Place(self._memory.epoch, self._memory.number)

    def note(self, job_ids: frozenset[str]) -> None:
        """Note that jobs have changed. May be called in any thread."""
        loop = self._loop
        if loop is None:
            return
        with self._lock:
            self._noted |= job_ids
        _call_in(loop, self._wake.set)

    def note_all(self) -> None:
        """Note that anything may have changed, unseen. May be called in any thread."""
        self._is_all_noted = True
        self.note(frozenset())

    def close(self) -> None:
        """End all streams; those that begin later end at once. May be called in any thread."""
        self._is_closed = True
        loop = self._loop
        if loop is not None:
            _call_in(loop, self._close_streams)

    async def start(self) -> None:
        """Begin to look for changes, so that a watcher that comes soon gets all of those from then on."""
        self._watched_at = asyncio.get_running_loop().time()
        async with self._starting:
            if self._task is None or self._task.done():
                self._loop = asyncio.get_running_loop()
                self._memory = _Memory()
                self._position = await STREAMS.run(self._reader.find_newest_event)
                self._task = asyncio.create_task(self._run(), name="feed")

    @contextmanager
    def watch_job(self, job_id: str) -> Generator[JobWatcher]:
        """Watch one job while the block lasts; its present state comes first."""
        watcher = JobWatcher(is_closed=self._is_closed)
        self._job_watchers[job_id].add(watcher)
        self.note(frozenset({job_id}))
        try:
            yield watcher
        finally:
            self._job_watchers[job_id].discard(watcher)
            if not self._job_watchers[job_id]:
                del self._job_watchers[job_id]

    @contextmanager
    def watch_list(self, chosen: ListFilter) -> Generator[ListWatcher]:
        watcher = ListWatcher(is_closed=self._is_closed, chosen=chosen)
        self._list_watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._list_watchers.discard(watcher)

    def list_since(self, place: Place) -> set[str] | None:
        """List the jobs that changed after a place; None if that is not known."""
        return self._memory.list_since(place)

    def _close_streams(self) -> None:
        for watcher in self._list_all_watchers():
            watcher.close()
        if self._task is not None:
            self._task.cancel()

    def count_streams(self) -> int:
        """Count the open streams."""
        return len(self._list_all_watchers())

    def _list_all_watchers(self) -> list[Watcher]:
        return [*self._list_watchers, *(each for group in self._job_watchers.values() for each in group)]

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._list_all_watchers():
                self._watched_at = loop.time()
            elif loop.time() >= self._watched_at + LINGER_SECONDS:
                # At once: a watcher that came meanwhile would take this task for one that goes on.
                return
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            begun_at = loop.time()
            try:
                await self._look()
            except Exception as error:
                # The database may be away: what was noted is looked at again.
                log.warning("streams_behind", error=str(error).partition("\n")[0])
                self.note_all()
            await asyncio.sleep(max(TICK_SECONDS, (loop.time() - begun_at) / MAX_SHARE))

    async def _look(self) -> None:
        self._wake.clear()
        with self._lock:
            noted, self._noted = self._noted, set[str]()
        if self._is_all_noted:
            self._is_all_noted = False
            noted |= set(self._job_watchers)
            self._memory = _Memory()
            for each in self._list_watchers:
                each.reset()
        max_rows = MAX_JOBS if self._list_watchers else 0
        changes = await STREAMS.run(self._reader.read, self._position, noted, set(self._job_watchers), max_rows)
        self._position = changes.newest_event
        if changes.job_ids:
            self._memory.add(changes.job_ids)
        self._hand_out(changes)
        if self._list_watchers and not max_rows:
            # Lists that began meanwhile have nothing of this look yet, which read no rows.
            self.note(frozenset(changes.job_ids))

    def _hand_out(self, changes: Changes) -> None:
        for job_id, watchers in self._job_watchers.items():
            for watcher in watchers:
                _hand_to(watcher, job_id, changes)
        if changes.rows is None:
            for each in self._list_watchers:
                each.reset()
        elif changes.rows:
            for each in self._list_watchers:
                each.add_jobs(changes.rows)


def _hand_to(watcher: JobWatcher, job_id: str, changes: Changes) -> None:
    """Give the changes of one job to one of its watchers."""
    if job_id in changes.details:
        watcher.job = changes.details[job_id]
        watcher.is_gone = watcher.job is None
        watcher.wake.set()
    if job_id in changes.log_versions and changes.log_versions[job_id] != watcher.log_version:
        watcher.log_version = changes.log_versions[job_id]
        watcher.wake.set()
    if events := changes.events.get(job_id):
        watcher.add_events(events)


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call a function in an event loop from any thread; not at all if the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function)
