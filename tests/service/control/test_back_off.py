from service.control.back_off import BackOff
from service.control.restart_policy import num_restarts_left
from service.jobs.models import Attempt
from service.jobs.reasons import Reason

BACK_OFF = BackOff(delay_seconds=10.0, max_delay_seconds=300.0)


def attempt(start_step: int | None = 0, saved_step: int | None = None, reason: str = "worker_crashed") -> Attempt:
    return Attempt(start_step=start_step, saved_step=saved_step, reason=reason)


def delays(attempts: list[Attempt]) -> list[float]:
    """After the first of them, after the first two, …"""
    return [BACK_OFF.seconds_after(attempts[: number + 1]) for number in range(len(attempts))]


def test_every_restart_in_a_row_waits_twice_as_long_up_to_the_longest() -> None:
    assert delays([attempt()] * 8) == [10, 20, 40, 80, 160, 300, 300, 300]


def test_an_attempt_that_saved_a_later_step_begins_a_new_row() -> None:
    went_on = attempt(start_step=100, saved_step=150)
    assert delays([attempt(), attempt(), went_on, attempt(150), attempt(150), went_on]) == [10, 20, 10, 20, 40, 10]


def test_an_attempt_that_only_saved_what_it_began_with_has_got_no_further() -> None:
    assert delays([attempt(100, 100), attempt(100, 100)]) == [10, 20]


def test_an_attempt_that_never_trained_has_got_no_further() -> None:
    assert delays([attempt(None), attempt(None)]) == [10, 20]


def test_a_thousand_restarts_wait_no_longer_than_the_longest() -> None:
    assert BACK_OFF.seconds_after([attempt()] * 3000) == 300


def test_stops_from_elsewhere_use_up_no_restarts() -> None:
    crashed, stopped = attempt(), attempt(reason=Reason.STOP_REQUESTED)
    assert [num_restarts_left(ended, 2) for ended in ([crashed], [crashed] * 2, [crashed] * 3)] == [2, 1, 0]
    assert num_restarts_left([stopped] * 9, 2) == 2
    assert num_restarts_left([stopped, crashed, stopped, crashed], 2) == 1


def test_an_attempt_that_got_further_gives_a_job_all_its_restarts_back() -> None:
    crashed, went_on = attempt(100), attempt(100, 150)
    ended = [crashed, crashed, went_on, crashed, went_on, went_on, crashed, crashed]
    left = [num_restarts_left(ended[: number + 1], 2) for number in range(len(ended))]
    assert left == [2, 1, 2, 1, 2, 2, 1, 0]
    assert num_restarts_left([went_on], 0) == 0
