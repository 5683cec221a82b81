"""The order of events: whoever reads on from the last event that it has seen misses none."""

import threading
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import select

from service.reasons import Reason
from service.store.job_repository import JobRepository
from service.store.models import Event
from tests.patience import PATIENCE_SECONDS
from tests.service.api import Api
from tests.service.databases import on_both_databases, on_postgresql

NUM_WRITERS = 6
NUM_EVENTS = 20


def hold(
    api: Api, job_id: str, before_commit: threading.Event | None = None, is_done: threading.Event | None = None
) -> None:
    """Hold a job, which adds an event; set `is_done` and wait before the commit."""
    with api.services.database.write() as session:
        jobs = JobRepository(session)
        jobs.set_held(jobs.lock(job_id), Reason.HELD, "test", "")
        if is_done:
            is_done.set()
        if before_commit:
            assert before_commit.wait(PATIENCE_SECONDS)


def read_new(api: Api, seen: list[int]) -> int:
    """Read the ids of the events of all jobs after the last one seen, add them, and return their number."""
    with api.services.database.read() as session:
        new = session.scalars(select(Event.id).where(Event.id > max(seen, default=0)).order_by(Event.id)).all()
    seen += new
    return len(new)


@on_postgresql
def test_an_event_of_a_longer_transaction_comes_after_those_that_others_committed(api: Api) -> None:
    slow, quick = api.submit()["id"], api.submit()["id"]
    seen: list[int] = []
    read_new(api, seen)
    may_commit, is_done = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        longer = pool.submit(hold, api, slow, may_commit, is_done)
        assert is_done.wait(PATIENCE_SECONDS)
        hold(api, quick)
        assert read_new(api, seen) == 1
        may_commit.set()
        longer.result()
    assert read_new(api, seen) == 1


@on_both_databases
def test_a_reader_beside_many_writers_sees_every_event_once(api: Api) -> None:
    job_ids = [api.submit()["id"] for _ in range(NUM_WRITERS)]

    def write(job_id: str) -> None:
        for _ in range(NUM_EVENTS):
            with api.services.database.write() as session:
                JobRepository(session).add_repair(job_id, 1, "found otherwise")

    seen: list[int] = []
    read_new(api, seen)
    with ThreadPoolExecutor(NUM_WRITERS) as pool:
        writes = [pool.submit(write, job_id) for job_id in job_ids]
        while not all(each.done() for each in writes):
            read_new(api, seen)
        read_new(api, seen)
        for each in writes:
            each.result()
    assert len(seen) == NUM_WRITERS * (NUM_EVENTS + 1)
