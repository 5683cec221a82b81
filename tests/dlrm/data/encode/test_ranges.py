"""Numbers divided into ranges."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config.schema import TimePart
from dlrm.data.encode.vocabulary import RangeVocabulary, divide_evenly
from dlrm.data.raw.values.distinct import encode_distinct_numbers, round_to_float32


def sizes_of(weights: list[int], num_groups: int) -> list[int]:
    starts = divide_evenly(np.array(weights), num_groups)
    return [sum(weights[start:end]) for start, end in pairwise([*starts, len(weights)])]


def test_items_of_one_weight_are_divided_evenly() -> None:
    assert sizes_of([1] * 100, 10) == [10] * 10
    assert sizes_of([1] * 7, 3) == [2, 3, 2]


@pytest.mark.parametrize("position", [0, 13, 40])
def test_a_heavy_item_leaves_the_other_groups_equal(position: int) -> None:
    weights = [1] * 40
    weights.insert(position, 60)
    sizes = sorted(sizes_of(weights, 10))
    assert len(sizes) == 10
    assert 60 <= sizes[-1] < 63
    assert sizes[0] >= 2
    assert sizes[-2] <= 6


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.data())
def test_every_group_has_at_least_one_item(weights: list[int], data: st.DataObject) -> None:
    num_groups = data.draw(st.integers(1, len(weights)))
    starts = divide_evenly(np.array(weights), num_groups)
    assert len(starts) == num_groups
    assert starts[0] == 0
    assert all(start < end for start, end in pairwise([*starts, len(weights)]))


def test_few_distinct_numbers_have_a_range_each() -> None:
    vocabulary = RangeVocabulary.divide(np.array([-1.0, 0.0, 7.5]), np.array([1, 1000, 3]), 8)
    assert vocabulary.edges == (0.0, 7.5)
    assert vocabulary.num_ids == 4
    assert vocabulary.encode(pl.Series([-5.0, -1.0, 0.0, 7.4, 7.5, 1e9])).tolist() == [1, 1, 2, 2, 3, 3]


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)


SINGLE = st.floats(-(2.0**23), 2.0**23, allow_nan=False, allow_subnormal=False, width=32)


@given(st.lists(SINGLE, min_size=1, max_size=30, unique=True))
def test_a_number_has_the_same_range_from_float32_as_from_its_text(numbers: list[float]) -> None:
    """Whichever of the two the ranges were made from."""
    single = np.sort(np.array(numbers, dtype=np.float32))
    # The shortest text that is this float32, as a file has it.
    texts = np.array([float(str(number)) for number in single])
    counts = np.ones(len(single), dtype=np.int64)
    for made_from in (single.astype(np.float64), texts):
        vocabulary = RangeVocabulary.divide(made_from, counts, 8)
        ids = [vocabulary.encode(distinct_of(values)).tolist() for values in (single.astype(np.float64), texts)]
        assert ids[0] == ids[1]


def distinct_of(values: np.ndarray) -> pl.Series:
    """Return the values as columns have them, each in its place."""
    encoded = encode_distinct_numbers(values)
    return encoded.distinct.gather(encoded.codes)


@given(st.lists(NUMBERS, max_size=50))
def test_rounding_keeps_the_order_and_changes_no_number_by_more_than_float32(numbers: list[float]) -> None:
    values = np.sort(np.array(numbers, dtype=np.float64))
    rounded = round_to_float32(values)
    assert (np.diff(rounded) >= 0).all()
    np.testing.assert_allclose(rounded, values, rtol=2.0**-24)
    whole = np.floor(values)
    np.testing.assert_array_equal(round_to_float32(whole), whole)


def test_a_column_without_numbers_has_one_range() -> None:
    vocabulary = RangeVocabulary.divide(np.empty(0), np.empty(0, dtype=np.int64), 8)
    assert vocabulary.num_ids == 2
    assert vocabulary.encode(pl.Series([3.0])).tolist() == [1]
    assert vocabulary.names == ["any"]


def test_names_of_ranges_say_their_edges() -> None:
    assert RangeVocabulary(edges=(3.0, 7.25, 1e6)).names == ["< 3", "[3, 7.25)", "[7.25, 1000000)", ">= 1000000"]


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("hour", range(24)),
        ("weekday", range(1, 8)),
        ("day", range(1, 32)),
        ("month", range(1, 13)),
        ("year", range(1900, 2101)),
    ],
)
def test_every_value_of_a_part_of_a_time_has_a_row(part: TimePart, values: range) -> None:
    vocabulary = RangeVocabulary.for_time_part(part)
    assert vocabulary.encode(pl.Series(values)).tolist() == list(range(1, len(values) + 1))
    assert vocabulary.num_ids == len(values) + 1


def test_years_beyond_the_table_have_its_first_or_last_row() -> None:
    vocabulary = RangeVocabulary.for_time_part("year")
    assert vocabulary.encode(pl.Series([1066, 1900, 1901, 2100, 33658])).tolist() == [1, 1, 2, 201, 201]
