"""The power law over sizes, from points that are drawn from it."""

import math

import numpy as np
import pytest

from dlrm.record import MIN_SIZES, SizeLaw

SIZES = np.geomspace(2.5e5, 4e6, 5)


def compute_law(a: float, b: float, c: float, sizes: np.ndarray) -> np.ndarray:
    """Compute E = a x^b + c in float64, with x in multiples of 250,000."""
    return a * (sizes / 2.5e5) ** b + c


@pytest.mark.parametrize(("a", "b", "c"), [(0.1, -0.3, 0.15), (0.02, -1.0, 0.44), (0.3, -0.1, 0.0), (0.01, -2.5, 0.12)])
def test_points_on_a_law_give_back_its_exponent_and_its_values_beyond_them(a: float, b: float, c: float) -> None:
    law = SizeLaw([*zip(SIZES.tolist(), compute_law(a, b, c, SIZES).tolist(), strict=True)])
    assert law.exponent.value == pytest.approx(b, rel=0.01)
    for factor in (0.5, 2.0, 10.0):
        size = factor * SIZES[-1]
        assert law.predict(size).value == pytest.approx(compute_law(a, b, c, size), rel=2e-3)


@pytest.mark.parametrize(("num_sizes", "noise"), [(MIN_SIZES, 1e-4), (5, 5e-4), (8, 2e-3)])
def test_the_intervals_hold_for_about_nineteen_of_twenty_noisy_curves(num_sizes: int, noise: float) -> None:
    generator, num_curves = np.random.default_rng(7), 200
    sizes = np.geomspace(2.5e5, 4e6, num_sizes)
    num_held = np.zeros(3)
    for _ in range(num_curves):
        b = -generator.uniform(0.2, 1.0)
        errors = compute_law(0.1, b, 0.15, sizes) + generator.normal(scale=noise, size=num_sizes)
        law = SizeLaw([*zip(sizes.tolist(), errors.tolist(), strict=True)])
        truths = [b, *(float(compute_law(0.1, b, 0.15, factor * sizes[-1])) for factor in (2.0, 10.0))]
        intervals = [law.exponent, *(law.predict(factor * sizes[-1]) for factor in (2.0, 10.0))]
        for interval in intervals:
            assert interval.low <= interval.value <= interval.high
        num_held += [interval.low <= truth <= interval.high for truth, interval in zip(truths, intervals, strict=True)]
    # No fewer than 95 % less three standard deviations; one degree of freedom, of four sizes, has more.
    assert (num_held >= num_curves * (0.95 - 3 * math.sqrt(0.95 * 0.05 / num_curves))).all(), num_held
    assert num_held[0] < num_curves


def test_errors_that_do_not_fall_leave_the_exponent_open() -> None:
    law = SizeLaw([*zip(SIZES.tolist(), [0.2, 0.21, 0.22, 0.23, 0.24], strict=True)])
    assert (law.exponent.low, law.exponent.high) == (-math.inf, 0.0)
