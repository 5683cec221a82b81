import torch
from hypothesis import given
from hypothesis import strategies as st

from sharding.embedding.slices import Slices
from sharding.planner.slice_size import SLICE_BYTES

SIZES = st.integers(1, 5000)


@given(num_samples=SIZES, sample_bytes=st.integers(0, SLICE_BYTES * 2), chunk_size=SIZES)
def test_slices_cover_every_sample_once_in_order(num_samples: int, sample_bytes: int, chunk_size: int):
    slices = Slices.cut(num_samples, sample_bytes, chunk_size)
    covered = [sample for start, end in slices for sample in range(start, end)]
    assert covered == list(range(num_samples))
    assert all(slices.find_slice(sample) == n for n, (start, end) in enumerate(slices) for sample in range(start, end))


@given(num_samples=SIZES, chunk_size=SIZES, start=st.integers(0, 4999))
def test_a_chunk_is_in_two_slices_at_most(num_samples: int, chunk_size: int, start: int):
    slices = Slices.cut(num_samples, SLICE_BYTES, chunk_size)
    start = start % num_samples
    end = min(start + chunk_size, num_samples)
    assert slices.find_slice(end - 1) - slices.find_slice(start) <= 1


def test_rows_of_a_block_are_ordered_by_slice():
    slices = Slices(num_samples=5, size=2)
    block = torch.arange(15).unsqueeze(1)
    assert [slices.view_rows(block, number).flatten().tolist() for number in range(len(slices))] == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9, 10, 11],
        [12, 13, 14],
    ]
