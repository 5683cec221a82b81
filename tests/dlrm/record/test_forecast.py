"""The forecast of the log-loss at the end, from curves that are drawn from the power law."""

import random

import pytest

from dlrm.record import forecast_log_loss

NUM_RUN_SAMPLES = 10_000_000


def draw(
    a: float, b: float, c: float, d: float, num: int, until: float, noise: float = 0.0, seed: int = 0
) -> tuple[list[tuple[float, float]], float]:
    """Draw E = a (C + d)^b + c, in millions of samples, at `num` places up to `until` of the run, and its end."""
    chance = random.Random(seed)
    places = [NUM_RUN_SAMPLES * until * (number + 1) / num for number in range(num)]
    points = [(place, a * (place / 1e6 + d) ** b + c + chance.gauss(0.0, noise)) for place in places]
    return points, a * (NUM_RUN_SAMPLES / 1e6 + d) ** b + c


@pytest.mark.parametrize(
    ("a", "b", "c", "d"),
    [(0.05, -0.5, 0.44, 0.3), (0.02, -1.0, 0.45, 0.0), (0.1, -0.2, 0.3, 0.5), (0.0, -1.0, 0.45, 0.0)],
)
@pytest.mark.parametrize(("num", "until"), [(6, 0.6), (10, 0.5), (200, 0.4)])
def test_a_curve_without_noise_is_continued_to_its_end(
    a: float, b: float, c: float, d: float, num: int, until: float
) -> None:
    points, end = draw(a, b, c, d, num, until)
    forecast = forecast_log_loss(points, NUM_RUN_SAMPLES)
    assert forecast.log_loss == pytest.approx(end, abs=2e-4)
    assert forecast.low is not None
    assert forecast.high is not None
    assert forecast.high - forecast.low < 1e-3
    assert forecast.message.endswith("at the end if it goes on like this")


def test_most_intervals_of_noisy_curves_have_the_end_and_are_longer_with_more_noise() -> None:
    num_held, widths = 0, dict[float, list[float]]()
    for seed in range(60):
        noise = (1e-4, 1e-3)[seed % 2]
        points, end = draw(0.04, -0.3 - 0.01 * seed, 0.45, 0.01 * seed, 8, 0.5, noise, seed)
        forecast = forecast_log_loss(points, NUM_RUN_SAMPLES)
        assert forecast.low is not None
        assert forecast.log_loss is not None
        assert forecast.high is not None
        assert forecast.low <= forecast.log_loss <= forecast.high
        num_held += forecast.low <= end <= forecast.high
        widths.setdefault(noise, []).append(forecast.high - forecast.low)
    assert num_held >= 51
    assert sorted(widths[1e-3])[15] > 3 * sorted(widths[1e-4])[15]


def test_too_few_evaluations_and_what_makes_a_forecast_poor_are_said() -> None:
    points, _ = draw(0.05, -0.5, 0.44, 0.3, 6, 0.6)
    assert forecast_log_loss(points[:5], NUM_RUN_SAMPLES).message == "no forecast yet: 5 of 6 evaluations are done"
    assert forecast_log_loss(points[:5], NUM_RUN_SAMPLES).log_loss is None
    risen = [*points, (7_000_000.0, points[-1][1] + 0.001)]
    message = forecast_log_loss(risen, NUM_RUN_SAMPLES, ["the rate falls"]).message
    assert message.endswith("at the end if it goes on like this; poor, since the rate falls and the log-loss has risen")
