"""Each shape has its closed form, begins at its peak and ends at zero."""

import math
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config import curves

FRACTIONS = st.floats(0.0, 1.0)
DECAYS: list[Callable[[float], float]] = [
    partial(curves.polynomial, power=2.0),
    partial(curves.polynomial, power=0.5),
    curves.cosine,
    partial(curves.cooldown, length=0.2),
    partial(curves.cooldown, length=1.0),
]


@given(done=FRACTIONS, length=st.floats(0.001, 1.0))
def test_warm_up_is_linear_until_its_length_and_flat_behind_it(done: float, length: float):
    assert curves.linear_warmup(done, length) == pytest.approx(done / length if done < length else 1.0)


def test_no_warm_up_begins_at_the_peak():
    assert curves.linear_warmup(0.0, 0.0) == 1.0


@given(progress=FRACTIONS, power=st.floats(0.1, 10.0))
def test_polynomial_decay_has_its_closed_form(progress: float, power: float):
    remaining = 1.0 - progress
    assert curves.polynomial(progress, power) == pytest.approx(
        math.exp(power * math.log(remaining)) if remaining else 0
    )


@given(progress=FRACTIONS)
def test_cosine_decay_has_its_closed_form(progress: float):
    assert curves.cosine(progress) == pytest.approx(math.cos(math.pi * progress / 2) ** 2)


@given(progress=FRACTIONS, length=st.floats(0.01, 1.0))
def test_a_cool_down_is_flat_and_then_a_straight_line_to_zero(progress: float, length: float):
    flat_until = 1.0 - length
    expected = 1.0 if progress <= flat_until else 1.0 - (progress - flat_until) / length
    assert curves.cooldown(progress, length) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("decay", DECAYS)
@given(progress=FRACTIONS, further=st.floats(0.0, 1e-6))
def test_decays_start_at_one_end_at_zero_never_rise_and_do_not_jump(
    decay: Callable[[float], float], progress: float, further: float
):
    here, there = decay(progress), decay(min(progress + further, 1.0))
    assert decay(0.0) == pytest.approx(1.0)
    assert decay(1.0) == pytest.approx(0.0, abs=1e-12)
    assert 0.0 <= there <= here + 1e-12
    # The square root, the steepest of them, falls by 1e-3 over its last millionth.
    assert here - there <= 1.1e-3


@pytest.mark.parametrize(
    ("scaling", "expected"), [("none", 1.0), ("sqrt", 16.0), ("linear", 256.0), ("legw", 16.0)], ids=str
)
def test_the_peak_follows_the_batch(scaling: curves.RatioScaling, expected: float):
    assert curves.scale(256.0, scaling) == expected
    assert curves.scale(1.0, scaling) == 1.0


@given(length=st.floats(0.0, 0.5), ratio=st.floats(0.01, 1000.0))
def test_legw_warms_up_over_as_many_steps_whatever_the_batch(length: float, ratio: float):
    num_samples = 1e9
    num_steps = num_samples / 2048
    assert curves.legw_warmup(length, ratio) * num_steps / ratio == pytest.approx(length * num_steps)
