"""History of what jobs had in use, and of how many waited."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.capacity import use
from service.capacity.history import MAX_HOURS, MAX_POINTS, Interval, choose_point_seconds, sum_intervals
from service.store.models import Attempt, Job
from service.times import now
from tests.service.api import Api
from tests.service.databases import on_both_databases

GIB = 2**30


def test_a_point_has_the_mean_and_the_largest_amount_of_its_time() -> None:
    intervals = [
        Interval(0.0, 15.0, (2, 20, 0, 0)),
        Interval(15.0, 20.0, (4, 40, 1, 0)),
        Interval(18.0, None, (1, 10, 0, 1)),
        Interval(-20.0, -10.0, (100, 0, 0, 0)),
        Interval(40.0, None, (100, 0, 0, 0)),
    ]
    points = sum_intervals(intervals, 0.0, 35.0, 10)
    assert points.means[0] == [2.0, (2 * 5 + 4 * 3 + 5 * 2) / 10, 1.0, 1.0]
    assert points.maxima == ([2, 5, 1, 1], [20, 50, 10, 10], [0, 1, 0, 0], [0, 1, 1, 1])
    # One that takes the place of another one at the same moment is never counted beside it.
    assert sum_intervals(intervals[:2], 10.0, 20.0, 10).maxima[0] == [4]


@pytest.mark.parametrize("hours", [1, 2, 5, 24, 48, 100, MAX_HOURS])
def test_no_history_has_too_many_points(hours: int) -> None:
    seconds = choose_point_seconds(hours)
    start = 1.7e9 // seconds * seconds
    points = sum_intervals([], start, 1.7e9 + 3600 * hours, seconds)
    assert MAX_POINTS / 2 < len(points.means[0]) <= MAX_POINTS


def add_past(api: Api, *spans: tuple[datetime, datetime | None, datetime | None], **columns: Any) -> None:
    """Submit a job for each span, and give it its times: of submission, of the start and of the end."""
    for created_at, started_at, finished_at in spans:
        job_id = api.submit()["id"]
        with api.services.database.write() as session:
            job = session.get_one(Job, job_id)
            job.created_at, job.started_at, job.finished_at = created_at, started_at, finished_at
            job.state = "RUNNING" if finished_at is None else "SUCCEEDED" if started_at else "CANCELLED"
            for name, value in columns.items():
                setattr(job, name, value)
            if started_at is not None:
                job.num_attempts = 1
                attempt = {"id": job_id.replace("job", "att"), "job_id": job_id, "number": 1, "token_hash": ""}
                state = job.state if job.state in ("RUNNING", "SUCCEEDED") else "FAILED"
                session.add(Attempt(**attempt, state=state, started_at=started_at, finished_at=finished_at))


def read_history(api: Api, hours: int = 24) -> dict[str, Any]:
    return api.viewer.get("/v1/capacity/history", params={"hours": hours}).json()


def find_levels(history: dict[str, Any], name: str, *times: datetime) -> list[float]:
    """Return the means of the points that lie around some times."""
    since, seconds = datetime.fromisoformat(history["since"]), history["seconds_per_point"]
    return [history[name]["mean"][int((time - since).total_seconds() // seconds)] for time in times]


@on_both_databases
def test_what_jobs_held_and_how_many_waited_follows_from_their_times(api: Api) -> None:
    hour, end = timedelta(hours=1), now()
    start = end - 24 * hour
    add_past(api, (start - 5 * hour, start - 4 * hour, start + 4 * hour), num_nodes=2, num_cores=3)
    add_past(api, (start + 2 * hour, start + 8 * hour, None))
    add_past(api, (start + 10 * hour, None, start + 12 * hour))
    # One whose last attempt ended three hours ago waits again since then.
    add_past(api, (start - 2 * hour, start - hour, end - 3 * hour), state="QUEUED", num_cores=10)
    api.submit()
    history = read_history(api)
    times = [start + number * hour for number in (3, 6, 11, 22)] + [end - timedelta(seconds=1)]
    assert find_levels(history, "num_cores", *times) == [6 + 10, 10, 1 + 10, 1, 1]
    assert find_levels(history, "memory_bytes", *times) == [3 * GIB, GIB, 2 * GIB, GIB, GIB]
    assert find_levels(history, "num_waiting", *times[:4]) == [1, 1, 1, 1]
    assert history["num_waiting"]["max"][-1] == 2
    assert history["num_gpus"]["max"] == [0] * len(history["num_cores"]["mean"])
    assert history["launcher"] == "local"


@on_both_databases
def test_a_history_of_too_many_attempts_begins_where_it_is_complete(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, "MAX_INTERVALS", 3)
    minute, end = timedelta(minutes=1), datetime.now(UTC)
    add_past(api, *((end - 59 * minute, end - 50 * minute, end - number * minute) for number in (40, 30, 20, 10)))
    history = read_history(api, hours=1)
    assert abs(datetime.fromisoformat(history["since"]) - (end - 30 * minute)) < timedelta(seconds=1)
    # The point in which the first of the three ends, and the one in which all have ended.
    assert history["num_cores"]["max"][0] == 2
    assert find_levels(history, "num_cores", end - 25 * minute, end - 15 * minute, end - minute) == [2, 1, 0]


def test_a_history_is_computed_once_for_everybody_who_asks_within_its_first_point(api: Api) -> None:
    before = read_history(api, hours=1)
    api.submit()
    assert api.admin.get("/v1/capacity/history?hours=1").json() == before
    assert api.viewer.get("/v1/capacity/history?hours=169").status_code == 422
