from hypothesis import given
from hypothesis import strategies as st

from dlrm.moments.positions import bounds, chunks_of, num_in, parts_of

sizes = st.integers(1, 500)


@given(sizes, st.integers(1, 40))
def test_parts_cover_the_batch_in_order_and_differ_by_one_at_most(global_size: int, num_parts: int):
    parts = [bounds(number, num_parts, global_size) for number in range(num_parts)]
    assert [a for a, _ in parts] == [0, *(b for _, b in parts[:-1])]
    assert parts[-1][1] == global_size
    lengths = [b - a for a, b in parts]
    assert max(lengths) - min(lengths) <= 1


@given(sizes, st.integers(1, 40), st.data())
def test_the_parts_of_a_stretch_are_those_of_the_batch_cut_off_at_its_ends(
    global_size: int, num_parts: int, data: st.DataObject
):
    start = data.draw(st.integers(0, global_size - 1))
    end = data.draw(st.integers(start + 1, global_size))
    whole = [bounds(number, num_parts, global_size) for number in range(num_parts)]
    expected = [(max(a, start), min(b, end)) for a, b in whole if max(a, start) < min(b, end)]
    assert list(parts_of(start, end, num_parts, global_size)) == expected


@given(st.integers(0, 6).map(lambda power: 2**power), st.integers(1, 8), st.integers(1, 100))
def test_parts_are_whole_on_their_ranks_where_their_number_is_a_multiple(world_size: int, factor: int, share: int):
    num_parts, global_size = world_size * factor, world_size * share
    ends = {bounds(number, num_parts, global_size)[1] for number in range(num_parts)}
    assert {(rank + 1) * share for rank in range(world_size)} <= ends


@given(sizes, st.integers(1, 600))
def test_chunks_cover_a_stretch_and_only_the_last_is_short(end: int, chunk_size: int):
    chunks = list(chunks_of(0, end, chunk_size))
    assert sum(b - a for a, b in chunks) == end
    assert all(b - a == chunk_size for a, b in chunks[:-1])


def test_valid_samples_come_first():
    assert [num_in(0, 4, 6), num_in(4, 8, 6), num_in(8, 12, 6)] == [4, 2, 0]
