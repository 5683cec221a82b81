import pytest

from dlrm.config import ScheduleConfig


def test_warm_up_is_linear_and_reaches_one_at_its_end():
    schedule = ScheduleConfig(warmup_fraction=0.1, decay="constant")
    factors = [schedule.factor(step, 100) for step in range(12)]
    assert factors == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("power", [1.0, 2.0, 0.5])
def test_polynomial_decay_has_its_closed_form_and_stays_above_zero(power: float):
    schedule = ScheduleConfig(warmup_fraction=0.1, decay="polynomial", power=power)
    for step in range(10, 100):
        progress = (step + 1 - 10) / 90
        expected = (1 - progress) ** power if step < 99 else (1 / 91) ** power
        assert schedule.factor(step, 100) == pytest.approx(expected)


def test_a_schedule_without_warm_up_starts_at_its_peak():
    schedule = ScheduleConfig(warmup_fraction=0.0, decay="polynomial", power=1.0)
    assert schedule.factor(0, 10) == 1.0
    assert schedule.factor(5, 10) == pytest.approx(0.5)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7])
def test_very_short_runs_have_positive_rates_up_to_one(num_steps: int):
    for warmup_fraction in (0.0, 0.1, 0.5):
        schedule = ScheduleConfig(warmup_fraction=warmup_fraction)
        assert all(0 < schedule.factor(step, num_steps) <= 1 for step in range(num_steps))


@pytest.mark.parametrize(("scaling", "scale"), [("none", 1.0), ("sqrt", 16.0), ("linear", 256.0)])
def test_the_peak_follows_the_batch_as_asked(scaling: str, scale: float):
    schedule = ScheduleConfig.model_validate({"scaling": scaling, "base_batch": 2048})
    assert schedule.scale(524_288) == scale


def test_the_shape_does_not_depend_on_the_number_of_steps():
    schedule = ScheduleConfig()
    assert schedule.factor(499, 1000) == pytest.approx(schedule.factor(49, 100), rel=0.02)
