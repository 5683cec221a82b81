from service.control.restart_policy import BackOff, count_restarts_left
from service.reasons import Reason
from service.store.models import Attempt

BACK_OFF = BackOff(delay_seconds=10.0, max_delay_seconds=300.0)


def make_attempt(start_step: int | None = 0, saved_step: int | None = None, reason: str = "worker_crashed") -> Attempt:
    return Attempt(start_step=start_step, saved_step=saved_step, reason=reason)


def list_delays(attempts: list[Attempt]) -> list[float]:
    """Compute the delay in seconds after the first attempt, after the first two, and so on."""
    return [BACK_OFF.compute_delay_seconds(attempts[: number + 1]) for number in range(len(attempts))]


def test_every_restart_in_a_row_waits_twice_as_long_up_to_the_longest() -> None:
    assert list_delays([make_attempt()] * 8) == [10, 20, 40, 80, 160, 300, 300, 300]


def test_an_attempt_that_saved_a_later_step_begins_a_new_row() -> None:
    progressed = make_attempt(start_step=100, saved_step=150)
    first, later = make_attempt(), make_attempt(150)
    assert list_delays([first, first, progressed, later, later, progressed]) == [10, 20, 10, 20, 40, 10]


def test_an_attempt_that_only_saved_what_it_began_with_has_got_no_further() -> None:
    assert list_delays([make_attempt(100, 100), make_attempt(100, 100)]) == [10, 20]


def test_an_attempt_that_never_trained_has_got_no_further() -> None:
    assert list_delays([make_attempt(None), make_attempt(None)]) == [10, 20]


def test_a_thousand_restarts_wait_no_longer_than_the_longest() -> None:
    assert BACK_OFF.compute_delay_seconds([make_attempt()] * 3000) == 300


def test_stops_from_elsewhere_use_up_no_restarts() -> None:
    crashed, stopped = make_attempt(), make_attempt(reason=Reason.STOP_REQUESTED)
    assert [count_restarts_left(ended, 2) for ended in ([crashed], [crashed] * 2, [crashed] * 3)] == [2, 1, 0]
    assert count_restarts_left([stopped] * 9, 2) == 2
    assert count_restarts_left([stopped, crashed, stopped, crashed], 2) == 1


def test_an_attempt_that_got_further_gives_a_job_all_its_restarts_back() -> None:
    crashed, progressed = make_attempt(100), make_attempt(100, 150)
    ended = [crashed, crashed, progressed, crashed, progressed, progressed, crashed, crashed]
    left = [count_restarts_left(ended[: number + 1], 2) for number in range(len(ended))]
    assert left == [2, 1, 2, 1, 2, 2, 1, 0]
    assert count_restarts_left([progressed], 0) == 0
