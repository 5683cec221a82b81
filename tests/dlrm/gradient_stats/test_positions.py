"""Which samples of a global batch a rank has."""

from hypothesis import given
from hypothesis import strategies as st

from dlrm.gradient_stats.positions import Share, chunks_of, num_of_class


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 400))
def test_the_first_samples_are_spread_evenly_over_all_ranks(world_size: int, size: int, count: int):
    count = min(count, world_size * size)
    counts = [Share(rank, world_size, size, world_size * size).num_among_first(count) for rank in range(world_size)]
    assert counts == [len([i for i in range(count) if i % world_size == rank]) for rank in range(world_size)]
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 20), st.integers(0, 100))
def test_positions_of_a_class_are_counted(num_classes: int, count: int):
    counts = [num_of_class(number, num_classes, count) for number in range(num_classes)]
    assert counts == [sum(i % num_classes == number for i in range(count)) for number in range(num_classes)]


@given(st.integers(1, 500), st.integers(1, 600))
def test_chunks_cover_a_stretch_and_only_the_last_is_short(end: int, chunk_size: int):
    chunks = list(chunks_of(0, end, chunk_size))
    assert sum(b - a for a, b in chunks) == end
    assert all(b - a == chunk_size for a, b in chunks[:-1])
