"""Forecasts of the time at which a waiting job starts."""

from service.launchers.protocol import Capacity
from service.queue.forecast import ExpectedEnd, WaitingJob, forecast_start_seconds


def cores(number: int) -> Capacity:
    return Capacity(number, number * 2**30, 0)


def test_a_job_that_fits_starts_now() -> None:
    assert forecast_start_seconds(cores(2), [], [], cores(2)) == 0


def test_a_job_starts_when_enough_running_jobs_have_ended() -> None:
    ends = [ExpectedEnd(30, cores(1)), ExpectedEnd(10, cores(1)), ExpectedEnd(20, cores(2))]
    assert forecast_start_seconds(cores(0), ends, [], cores(3)) == 20


def test_jobs_ahead_start_first_and_give_their_room_back() -> None:
    ahead = [WaitingJob(cores(4), 100.0)]
    assert forecast_start_seconds(cores(0), [ExpectedEnd(10, cores(4))], ahead, cores(4)) == 110


def test_a_small_job_passes_one_that_does_not_fit() -> None:
    ahead = [WaitingJob(cores(4), 100.0)]
    assert forecast_start_seconds(cores(1), [ExpectedEnd(10, cores(3))], ahead, cores(1)) == 0


def test_nothing_is_foretold_where_a_run_of_unknown_length_is_in_the_way() -> None:
    assert forecast_start_seconds(cores(4), [], [WaitingJob(cores(4), None)], cores(1)) is None
    assert forecast_start_seconds(cores(0), [], [], cores(1)) is None
