from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config import ScheduleConfig

BASE = 2048
WARMUPS, SCALINGS = st.floats(0.0, 0.5), st.sampled_from(["none", "sqrt", "linear", "legw"])
SCHEDULES = st.builds(
    ScheduleConfig,
    warmup_fraction=WARMUPS,
    decay=st.sampled_from(["polynomial", "cosine", "constant"]),
    scaling=SCALINGS,
) | st.builds(
    ScheduleConfig,
    warmup_fraction=WARMUPS,
    decay=st.just("wsd"),
    cooldown_fraction=st.floats(0.1, 0.5),
    scaling=SCALINGS,
)


def factor(schedule: ScheduleConfig, step: float, num_steps: float, global_size: int = BASE) -> float:
    return schedule.factor(step, num_steps, schedule.count_warmup_steps(num_steps, global_size))


def factors(schedule: ScheduleConfig, num_steps: int, global_size: int = BASE) -> list[float]:
    return [factor(schedule, step, num_steps, global_size) for step in range(num_steps)]


def test_warm_up_is_linear_and_reaches_one_at_its_end():
    schedule = ScheduleConfig(warmup_fraction=0.1, decay="constant")
    assert factors(schedule, 100)[:12] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("power", [1.0, 2.0, 0.5])
def test_polynomial_decay_has_its_closed_form_and_stays_above_zero(power: float):
    schedule = ScheduleConfig(warmup_fraction=0.1, decay="polynomial", power=power)
    for step in range(10, 100):
        progress = (step + 1 - 10) / 90
        expected = (1 - progress) ** power if step < 99 else (1 / 91) ** power
        assert factor(schedule, step, 100) == pytest.approx(expected)


def test_wsd_warms_up_stays_and_cools_down_over_shares_of_the_run():
    found = factors(ScheduleConfig(warmup_fraction=0.1, decay="wsd", cooldown_fraction=0.25), 1000)
    assert found[:100] == pytest.approx([(step + 1) / 100 for step in range(100)])
    assert found[100:750] == pytest.approx([1.0] * 650)
    assert found[750:999] == pytest.approx([(1000 - step - 1) / 250 for step in range(750, 999)])
    assert 0 < found[-1] < found[-2]


def test_a_schedule_without_warm_up_starts_at_its_peak():
    schedule = ScheduleConfig(warmup_fraction=0.0, decay="polynomial", power=1.0)
    assert factor(schedule, 0, 10) == 1.0
    assert factor(schedule, 5, 10) == pytest.approx(0.5)


@given(schedule=SCHEDULES, num_steps=st.integers(1, 40), global_size=st.integers(1, 2**20))
def test_rates_of_short_runs_are_positive_and_reach_their_peak(
    schedule: ScheduleConfig, num_steps: int, global_size: int
):
    found = factors(schedule, num_steps, global_size)
    assert all(0 < factor <= 1 for factor in found)
    # The told peak is reached, whether or not the warm-up is a whole number of steps.
    assert max(found) == 1.0


@given(schedule=SCHEDULES, global_size=st.integers(1, 2**20))
def test_rates_of_a_long_run_do_not_jump(schedule: ScheduleConfig, global_size: int):
    num_steps = 2000
    found = factors(schedule, num_steps, global_size)
    num_warmup_steps = round(schedule.warmup(global_size) * num_steps)
    steepest_rise = 1.0 if num_warmup_steps < 2 else 1 / num_warmup_steps
    for before, after in pairwise(found):
        assert -0.011 < after - before <= steepest_rise + 1e-9
    assert max(found) == 1.0


@given(schedule=SCHEDULES, num_steps=st.integers(1, 200), num_more=st.integers(1, 100))
def test_a_few_rows_more_change_no_steps_rate(schedule: ScheduleConfig, num_steps: int, num_more: int):
    """A hundred of 65,536: less than two thousandths of a step."""
    with_more = [factor(schedule, step, num_steps + num_more / 65_536) for step in range(num_steps)]
    assert with_more == pytest.approx(factors(schedule, num_steps), abs=0.02)


@pytest.mark.parametrize(("scaling", "scale"), [("none", 1.0), ("sqrt", 16.0), ("linear", 256.0), ("legw", 16.0)])
def test_the_peak_follows_the_batch_as_asked(scaling: str, scale: float):
    schedule = ScheduleConfig.model_validate({"scaling": scaling, "base_batch": 2048})
    assert schedule.scale(524_288, "sqrt") == schedule.scale(524_288, "linear") == scale


def test_the_shape_does_not_depend_on_the_number_of_steps():
    schedule = ScheduleConfig()
    assert factor(schedule, 499, 1000) == pytest.approx(factor(schedule, 49, 100), rel=0.02)


def test_legw_warms_up_longer_with_the_batch_up_to_half_of_the_run():
    schedule = ScheduleConfig(warmup_fraction=0.02, scaling="legw")
    assert [schedule.warmup(BASE * ratio) for ratio in (1, 4, 25, 26, 256)] == [0.02, 0.08, 0.5, 0.5, 0.5]
    assert schedule.requested_warmup(BASE * 256) == pytest.approx(5.12)
    found = factors(schedule, 100, 4 * BASE)
    assert found[:8] == pytest.approx([(step + 1) / 8 for step in range(8)])
    capped = factors(schedule, 100, 256 * BASE)
    assert capped[:50] == pytest.approx([(step + 1) / 50 for step in range(50)])


@pytest.mark.parametrize(
    ("document", "cooldown_fraction"),
    [
        ({"decay": "wsd"}, 0.2),
        ({"decay": "wsd", "cooldown_fraction": None}, 0.2),
        ({"decay": "wsd", "cooldown_fraction": 0.3}, 0.3),
        ({"decay": "cosine"}, None),
        ({}, None),
    ],
)
def test_only_wsd_has_a_cool_down(document: dict[str, Any], cooldown_fraction: float | None):
    schedule = ScheduleConfig.model_validate(document)
    assert schedule.cooldown_fraction == cooldown_fraction
    assert ScheduleConfig.model_validate(schedule.model_dump()) == schedule
