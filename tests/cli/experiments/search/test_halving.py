"""The rungs and the survivors of successive halving."""

import pytest

from cli.experiments.search.halving import (
    choose_survivors,
    count_survivors,
    estimate_rest,
    estimate_seconds,
    list_rungs,
)

MANY_STEPS = 10_000


@pytest.mark.parametrize(
    ("num_trials", "numbers"),
    [(100, [100, 33, 11]), (27, [27, 9, 3]), (10, [10, 3, 1]), (9, [9, 3, 1]), (8, [8, 2]), (3, [3, 1]), (2, [2])],
)
def test_a_third_rounded_down_goes_on_from_each_of_at_most_three_rungs(num_trials: int, numbers: list[int]) -> None:
    rungs = list_rungs(num_trials, MANY_STEPS)
    assert [rung.fraction for rung in rungs] == pytest.approx([1 / 9, 1 / 3, 1.0][-len(numbers) :])
    counts = [num_trials]
    while len(counts) < len(rungs):
        counts.append(count_survivors(counts[-1]))
    assert counts == numbers


@pytest.mark.parametrize(("num_steps", "num_rungs"), [(10**6, 3), (450, 3), (449, 2), (150, 2), (149, 1), (1, 1)])
def test_the_shortest_runs_have_at_least_fifty_steps(num_steps: int, num_rungs: int) -> None:
    rungs = list_rungs(27, num_steps)
    assert len(rungs) == num_rungs
    assert num_rungs == 1 or num_steps * rungs[0].fraction >= 50 - 1e-6


def test_the_lowest_losses_survive_and_failed_trials_count_in_the_third() -> None:
    losses = {1: 0.5, 2: 0.3, 4: 0.4, 5: 0.3}
    assert choose_survivors(losses, 9) == [2, 5, 4]
    assert choose_survivors(losses, 6) == [2, 5]
    assert choose_survivors({3: 0.7}, 9) == [3]
    assert choose_survivors({}, 9) == []


def test_a_run_is_estimated_from_its_share_else_between_shortest_and_longest() -> None:
    assert estimate_seconds(1 / 9, {1.0: [90.0]}) == pytest.approx(10.0)
    measured = {1.0: [80.0, 100.0], 1 / 9: [18.0, 18.0]}
    assert estimate_seconds(1 / 9, measured) == 18.0
    assert estimate_seconds(1 / 3, measured) == pytest.approx(9.0 + 81.0 / 3)


def test_the_rest_of_a_tuning_is_one_more_trial_and_all_that_go_on() -> None:
    rungs = list_rungs(9, MANY_STEPS)
    measured = {1.0: [90.0], 1 / 3: [30.0], 1 / 9: [10.0]}
    assert estimate_rest(0, rungs[0], rungs, measured) == pytest.approx(10 + 30 + 90)
    assert estimate_rest(8, rungs[0], rungs, measured) == pytest.approx(10 + 3 * 30 + 90)
    assert estimate_rest(1, rungs[1], rungs, measured) == pytest.approx(30 + 90)
    assert estimate_rest(0, rungs[2], rungs, measured) == pytest.approx(90)
