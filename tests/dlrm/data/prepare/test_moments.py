import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.data.prepare.measure import Moments

VALUES = st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(math.nan)))


@given(st.lists(VALUES))
def test_parts_add_up_to_the_whole(parts: list[list[float]]) -> None:
    total = sum((Moments.from_values(np.array(part, dtype=np.float64)) for part in parts), start=Moments())
    values = [value for part in parts for value in part]
    present = [value for value in values if not math.isnan(value)]
    assert (total.num_present, total.num_missing) == (len(present), len(values) - len(present))
    if present:
        assert total.mean == pytest.approx(math.fsum(present) / len(present), rel=1e-9, abs=1e-6)
        variance = math.fsum((value - total.mean) ** 2 for value in present) / len(present)
        assert total.squares / len(present) == pytest.approx(variance, rel=1e-6, abs=1e-3)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.lists(st.integers(1, 100), min_size=1))
def test_values_that_are_all_the_same_have_no_deviation_to_divide_by(value: float, sizes: list[int]) -> None:
    total = sum((Moments.from_values(np.full(size, value)) for size in sizes), start=Moments())
    assert (total.mean, total.squares, total.standard_deviation) == (value, 0, 1)


def test_small_deviations_from_a_large_mean_are_not_lost() -> None:
    total = Moments.from_values(np.array([1e9, 1e9 + 1])) + Moments.from_values(np.array([1e9 + 2, 1e9 + 3]))
    assert total.standard_deviation == pytest.approx(math.sqrt(1.25))
