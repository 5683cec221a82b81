import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.sharding.native.reference import draw_zipf_ids, make_source, pool_in_float64

COLUMNS = [1, 3, 8, 16, 32, 64, 100, 128]


def pool(weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, first_row: int = 0) -> torch.Tensor:
    out = torch.full((len(offsets) - 1, weights.shape[1]), torch.nan)
    torch.ops.dlrm_tables.pool(weights, ids, offsets, first_row, out, False)
    return out


@st.composite
def draw_bags(draw: st.DrawFn) -> tuple[list[list[int]], int, int]:
    """Bags of ids, some of them of other shards; rows; first row."""
    num_rows, first_row = draw(st.integers(1, 9)), draw(st.integers(0, 5))
    ids = st.integers(-2, first_row + num_rows + 3)
    return draw(st.lists(st.lists(ids, max_size=5), max_size=12)), num_rows, first_row


@given(draw_bags(), st.sampled_from(COLUMNS))
def test_a_bag_is_the_sum_of_its_rows_that_the_shard_has(drawn: tuple[list[list[int]], int, int], columns: int) -> None:
    of_bags, num_rows, first_row = drawn
    weights = torch.randn(num_rows, columns, generator=torch.Generator().manual_seed(num_rows))
    ids = torch.tensor([i for bag in of_bags for i in bag], dtype=torch.int64)
    source = make_source(ids, torch.tensor([len(bag) for bag in of_bags]), columns)
    expected = pool_in_float64(weights, source, first_row)
    torch.testing.assert_close(pool(weights, ids, source.offsets, first_row).double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_of_out_may_have_gaps_which_are_not_written(columns: int) -> None:
    weights = torch.randn(50, columns)
    source = make_source(torch.randint(0, 50, (300,)), torch.full((100,), 3), columns)
    block = torch.full((100, 3, columns), 7.0)
    torch.ops.dlrm_tables.pool(weights, source.ids, source.offsets, 0, block[:, 1], False)
    torch.testing.assert_close(block[:, 1].double(), pool_in_float64(weights, source, 0), rtol=0, atol=1e-5)
    assert (block[:, [0, 2]] == 7).all()


@pytest.mark.parametrize("columns", [3, 64])
def test_two_shards_by_rows_accumulate_to_the_whole_table(columns: int) -> None:
    weights = torch.randn(50, columns)
    source = make_source(torch.randint(0, 50, (300,)), torch.full((100,), 3), columns)
    out = torch.full((100, columns), torch.nan)
    torch.ops.dlrm_tables.pool(weights[:20], source.ids, source.offsets, 0, out, False)
    torch.ops.dlrm_tables.pool(weights[20:], source.ids, source.offsets, 20, out, True)
    torch.testing.assert_close(out.double(), pool_in_float64(weights, source, 0), rtol=0, atol=1e-5)


def test_offsets_are_places_among_all_ids() -> None:
    weights = torch.randn(50, 64)
    source = make_source(torch.randint(0, 50, (100,)), torch.ones(100), 64)
    whole = pool(weights, source.ids, source.offsets)
    assert torch.equal(pool(weights, source.ids, source.offsets[30:71]), whole[30:70])


def test_the_last_row_of_a_large_table_is_read_and_none_after_it() -> None:
    weights = torch.arange(30_000, dtype=torch.float32).repeat_interleave(16).view(-1, 16)
    shard = weights[10_000:20_000]
    out = pool(shard, torch.tensor([19_999, 20_000, 9_999, 10_000]), torch.arange(5), 10_000)
    assert out[:, 0].tolist() == [19_999, 0, 0, 10_000]


@pytest.mark.parametrize("columns", [5, 64])
def test_the_number_of_threads_does_not_change_a_bit(columns: int) -> None:
    weights = torch.randn(1000, columns)
    source = make_source(draw_zipf_ids(20_000, 1000), torch.randint(0, 5, (10_000,)), columns)
    offsets = source.offsets.clamp(max=20_000)
    torch.set_num_threads(1)
    alone = pool(weights, source.ids, offsets)
    torch.set_num_threads(3)
    assert torch.equal(pool(weights, source.ids, offsets), alone)


def test_no_bags_and_no_columns_are_no_work() -> None:
    assert pool(torch.randn(5, 4), torch.tensor([1]), torch.tensor([1])).shape == (0, 4)
    assert pool(torch.randn(5, 0), torch.tensor([1]), torch.tensor([0, 1])).shape == (1, 0)
    assert pool(torch.randn(0, 2), torch.tensor([1]), torch.tensor([0, 1])).tolist() == [[0, 0]]


REFUSED = {
    "weights: Double, must be float32": {"weights": torch.zeros(4, 2, dtype=torch.float64)},
    "weights: shape [4], must be [rows, columns]": {"weights": torch.zeros(4)},
    "weights: must be contiguous": {"weights": torch.zeros(2, 4).T},
    "ids: Int, must be int64": {"ids": torch.zeros(3, dtype=torch.int32)},
    "ids: shape [3, 1], must have one dimension": {"ids": torch.zeros(3, 1, dtype=torch.int64)},
    "ids: must be contiguous": {"ids": torch.zeros(6, dtype=torch.int64)[::2]},
    "offsets: Int, must be int64": {"offsets": torch.zeros(3, dtype=torch.int32)},
    "offsets: empty, must be one more": {"offsets": torch.zeros(0, dtype=torch.int64)},
    "offsets: the first is -1, must not be negative": {"offsets": torch.tensor([-1, 1, 3])},
    "offsets: some offset is less than the one before": {"offsets": torch.tensor([0, 2, 1])},
    "offsets: the last is 4, but there are 3 ids": {"offsets": torch.tensor([0, 1, 4])},
    "first_row: -1, must not be negative": {"first_row": -1},
    "out: Half, must be float32": {"out": torch.zeros(2, 2, dtype=torch.float16)},
    "out: shape [3, 2], must be [2, 2]": {"out": torch.zeros(3, 2)},
    "out: the numbers of a row must lie side by side, stride(1) is 2": {"out": torch.zeros(2, 2).T},
    "out: its rows overlap, stride(0) is 0": {"out": torch.zeros(1, 2).expand(2, 2)},
}


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_arguments_are_refused_by_name(message: str) -> None:
    given_ = {
        "weights": torch.zeros(4, 2),
        "ids": torch.tensor([0, 1, 2]),
        "offsets": torch.tensor([0, 1, 3]),
        "first_row": 0,
        "out": torch.zeros(2, 2),
    }
    torch.ops.dlrm_tables.pool(**given_, accumulate=False)
    with pytest.raises((ValueError, TypeError, IndexError)) as refused:
        torch.ops.dlrm_tables.pool(**{**given_, **REFUSED[message]}, accumulate=False)
    assert message in str(refused.value)
