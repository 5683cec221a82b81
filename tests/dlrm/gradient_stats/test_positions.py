"""The samples of a global batch that a rank has."""

from hypothesis import given
from hypothesis import strategies as st

from dlrm.gradient_stats.estimator import Share, count_positions


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 400))
def test_the_first_samples_are_spread_evenly_over_all_ranks(world_size: int, size: int, count: int):
    count = min(count, world_size * size)
    counts = [Share(rank, world_size, size, world_size * size).count_among_first(count) for rank in range(world_size)]
    assert counts == [len([i for i in range(count) if i % world_size == rank]) for rank in range(world_size)]
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 20), st.integers(0, 100))
def test_positions_of_a_class_are_counted(num_classes: int, count: int):
    counts = [count_positions(number, num_classes, count) for number in range(num_classes)]
    assert counts == [sum(i % num_classes == number for i in range(count)) for number in range(num_classes)]
