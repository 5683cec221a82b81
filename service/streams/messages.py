"""Messages of a stream, as server-sent events."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable

from fastapi.sse import format_sse_event

from service.access.principal import Principal
from service.http.problems import ProblemError
from service.schemas import ENDED_STATES
from service.streams.feed import STREAMS, Feed, Place
from service.streams.reader import ChangeReader
from service.streams.watchers import JobWatcher, ListFilter, Row, Watcher

HEARTBEAT_SECONDS = 15.0
"""Longest time without a message: proxies cut connections on which nothing comes for a minute or so."""
CHECK_SECONDS = 60.0
"""Time between two checks of whether the receiver may still read."""
EVENTS_PER_PAGE = 200
RETRY_MILLISECONDS = (1000, 3000)
"""Range of the time after which a client comes back: after a restart not all come at once."""

Check = Callable[[], Awaitable[object]]
"""Check of whether the receiver may still read. Raises ProblemError if not."""


async def stream_job(
    feed: Feed, reader: ChangeReader, job: Row, principal: Principal, after: int | None, check: Check
) -> AsyncGenerator[bytes]:
    """Yield the messages of a job from the event with the id `after` on, until it has ended and all was sent.

    job: state of the job that was read just now. principal: the receiver. after: None for no events.
    """
    yield _make_opening()
    job_id: str = job["id"]
    sent: Row = {}
    log_version: object = None
    with feed.watch_job(job_id) as watcher:
        watcher.job = job
        watcher.wake.set()
        async for is_new in _wait(watcher, check):
            if not is_new:
                yield format_sse_event(comment="")
                continue
            newest, watcher.job = watcher.job, None
            has_ended = newest is not None and newest["state"] in ENDED_STATES
            if after is not None:
                async for event_id, text in _take_events(reader, watcher, job_id, after, is_last=has_ended):
                    yield format_sse_event(data_str=text, event="event", id=str(event_id))
                    after = event_id
            if newest is not None:
                if newest is not job and newest["queue"] is not None and principal.visible_owner is None:
                    # The feed reads it as its owner sees it, who may not know of all jobs in front.
                    newest = await STREAMS.run(reader.get_job, job_id, principal)
                for message in _describe_change(sent, newest):
                    yield message
                sent = newest
            if watcher.log_version != log_version:
                log_version = watcher.log_version
                yield _make_message("log", {"attempt": sent.get("num_attempts")})
            if watcher.is_gone or has_ended:
                yield _make_message("end", {"state": None if watcher.is_gone else sent["state"]})
                return


async def _take_events(
    reader: ChangeReader, watcher: JobWatcher, job_id: str, after: int, *, is_last: bool
) -> AsyncGenerator[tuple[int, str]]:
    """Yield ids and JSON of the events with ids above `after`: those that wait; if some are missing, from the table.

    is_last: whether the job has ended, so that the table has all its events.
    """
    has_more = watcher.is_behind or is_last
    if has_more:
        # What comes from now on waits again.
        watcher.is_behind = False
        watcher.events.clear()
    while has_more:
        events, has_more = await STREAMS.run(reader.list_events, job_id, after, EVENTS_PER_PAGE)
        for event_id, text in events:
            yield event_id, text
            after = event_id
    while watcher.events:
        event_id, text = watcher.events.popleft()
        if event_id > after:
            yield event_id, text


def _describe_change(sent: Row, job: Row) -> list[bytes]:
    """Describe how a job differs from what was sent last: the fields that changed, and whether curves go on."""
    changed = {name: value for name, value in job.items() if name not in sent or sent[name] != value}
    messages = [_make_message("job", changed)] if changed else []
    curves = _find_curves(job)
    if job["num_attempts"] and curves != (_find_curves(sent) if sent else None):
        messages.append(_make_message("curves", {"attempt": job["num_attempts"], "step": job["progress"]["step"]}))
    return messages


def _find_curves(job: Row) -> tuple[object, ...]:
    progress = job["progress"]
    return job["num_attempts"], progress["step"], progress["auc"], job["state"] in ENDED_STATES


async def stream_list(
    feed: Feed, reader: ChangeReader, chosen: ListFilter, place: Place | None, check: Check
) -> AsyncGenerator[bytes]:
    """Yield the jobs of a list as they change, and the ids of those that leave it, until the client has left.

    place: what the client has seen already; if it is not known any more, or None, the first message is `reset`.
    """
    yield _make_opening()
    with feed.watch_list(chosen) as watcher:
        missed = None if place is None else feed.list_since(place)
        if missed is None:
            watcher.reset()
        elif missed:
            watcher.add_jobs(await STREAMS.run(reader.read_rows, missed))
        async for is_new in _wait(watcher, check):
            if not is_new:
                yield format_sse_event(comment="")
                continue
            place_id = str(feed.place)
            if watcher.is_reset:
                watcher.is_reset = False
                yield _make_message("reset", {}, place_id)
            jobs, watcher.jobs = watcher.jobs, {}
            for number, (job_id, job) in enumerate(jobs.items(), 1):
                # A client that is cut between two of them gets all again.
                message_id = place_id if number == len(jobs) else None
                yield (
                    _make_message("gone", {"id": job_id}, message_id)
                    if job is None
                    else _make_message("job", job, message_id)
                )


async def _wait(watcher: Watcher, check: Check) -> AsyncGenerator[bool]:
    """Yield True whenever there is something to send, and False for a heartbeat, until the stream should end."""
    loop = asyncio.get_running_loop()
    checked_at = loop.time()
    while not watcher.is_closed:
        if loop.time() >= checked_at + CHECK_SECONDS:
            checked_at = loop.time()
            try:
                await check()
            except ProblemError as problem:
                if problem.status < 500:
                    return
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await watcher.wake.wait()
        except TimeoutError:
            yield False
            continue
        watcher.wake.clear()
        if not watcher.is_closed:
            yield True


def _make_opening() -> bytes:
    return format_sse_event(comment="", retry=random.randint(*RETRY_MILLISECONDS))


def _make_message(name: str, content: Row, message_id: str | None = None) -> bytes:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return format_sse_event(data_str=text, event=name, id=message_id)
