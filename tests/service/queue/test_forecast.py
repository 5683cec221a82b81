"""Forecasts of the time at which a waiting job starts."""

from service.launchers.protocol import Capacity
from service.queue.forecast import RunningJob, WaitingJob, forecast_start_seconds
from service.store.models import Quota


def cores(number: int) -> Capacity:
    return Capacity(number, number * 2**30, 0)


def running(num_cores: int, seconds_left: float | None, owner: str = "ann") -> RunningJob:
    return RunningJob(owner, cores(num_cores), seconds_left)


def waiting(num_cores: int, run_seconds: float | None = None, owner: str = "ann") -> WaitingJob:
    return WaitingJob(owner, cores(num_cores), cores(num_cores), run_seconds)


def quota(owner: str, *, num_cores: int | None = None, num_running: int | None = None) -> dict[str, Quota]:
    return {owner: Quota(owner=owner, num_cores=num_cores, num_running=num_running)}


def test_a_job_that_fits_starts_now() -> None:
    assert forecast_start_seconds(cores(2), {}, [], [], waiting(2)) == 0
    assert forecast_start_seconds(cores(4), {}, [running(2, None)], [], waiting(2)) == 0


def test_a_range_of_machines_begins_in_little_room_and_counts_in_full_in_a_quota() -> None:
    job = WaitingJob("ann", cores(4), cores(2), None)
    assert forecast_start_seconds(cores(4), {}, [running(2, 10)], [], job) == 0
    assert forecast_start_seconds(cores(4), quota("ann", num_cores=4), [running(2, 10)], [], job) == 10


def test_a_job_starts_when_enough_running_jobs_have_ended() -> None:
    jobs = [running(1, 30), running(1, 10), running(2, 20)]
    assert forecast_start_seconds(cores(4), {}, jobs, [], waiting(3)) == 20


def test_jobs_ahead_start_first_and_give_their_room_back() -> None:
    assert forecast_start_seconds(cores(4), {}, [running(4, 10)], [waiting(4, 100.0)], waiting(4)) == 110


def test_a_small_job_passes_one_that_does_not_fit() -> None:
    assert forecast_start_seconds(cores(4), {}, [running(3, 10)], [waiting(4, 100.0)], waiting(1)) == 0


def test_nothing_is_foretold_where_a_run_of_unknown_length_is_in_the_way() -> None:
    assert forecast_start_seconds(cores(4), {}, [], [waiting(4)], waiting(1)) is None
    assert forecast_start_seconds(cores(1), {}, [], [], waiting(2)) is None


def test_nothing_is_foretold_where_an_unknown_end_might_come_first() -> None:
    assert forecast_start_seconds(cores(2), {}, [running(1, None), running(1, 60)], [], waiting(1)) is None


def test_a_job_waits_until_its_owners_quota_has_room() -> None:
    jobs = [running(1, 30), running(1, 10, owner="bob")]
    for limit in (quota("ann", num_cores=1), quota("ann", num_running=1), quota("*", num_cores=1)):
        assert forecast_start_seconds(cores(8), limit, jobs, [], waiting(1)) == 30
        assert forecast_start_seconds(cores(8), limit, jobs, [waiting(1, 5)], waiting(1)) == 35
    assert forecast_start_seconds(cores(8), quota("bob", num_running=1), jobs, [], waiting(1)) == 0


def test_a_job_passes_those_that_their_owners_quota_holds_back() -> None:
    jobs, limit = [running(1, 30), running(1, 20, owner="bob")], quota("ann", num_running=1)
    assert forecast_start_seconds(cores(2), limit, jobs, [waiting(1, 50)], waiting(1, owner="bob")) == 20
