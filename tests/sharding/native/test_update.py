from itertools import pairwise
from typing import Any

import pytest
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen
from hypothesis import given
from hypothesis import strategies as st

from tests.sharding.native.reference import (
    EPS,
    Source,
    draw_state,
    draw_zipf_ids,
    make_source,
    update,
    update_copies,
    update_in_float64,
)

OPTIMIZERS = ["sgd", "rowwise_adagrad", "adagrad"]
COLUMNS = [1, 3, 8, 16, 32, 64, 100, 128]
FORMATS = [torch.float32, torch.float16, torch.bfloat16]


def assert_as_reference(
    weights: torch.Tensor, sources: list[Source], optimizer: str, first_row: int = 0, gradient_multiplier: float = 1.0
) -> None:
    """Weights and state within 1e-6, relative or of 1."""
    state = draw_state(optimizer, *weights.shape)
    terms = {
        "first_row": first_row,
        "optimizer": optimizer,
        "learning_rate": 0.5,
        "gradient_multiplier": gradient_multiplier,
    }
    expected = update_in_float64(weights, state, sources, **terms)  # pyright: ignore[reportArgumentType]
    for got, wanted in zip(update_copies(weights, state, sources, **terms), expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-6, atol=1e-6)


@st.composite
def draw_sources(draw: st.DrawFn) -> tuple[list[list[list[int]]], int, int]:
    """Of each source the bags; rows; first row."""
    num_rows, first_row = draw(st.integers(1, 9)), draw(st.integers(0, 5))
    bags = st.lists(st.lists(st.integers(-2, first_row + num_rows + 3), max_size=5), max_size=8)
    return draw(st.lists(bags, max_size=4)), num_rows, first_row


@given(draw_sources(), st.sampled_from(COLUMNS), st.sampled_from(OPTIMIZERS), st.sampled_from(FORMATS))
def test_rows_move_once_by_the_sum_of_their_gradients(
    drawn: tuple[list[list[list[int]]], int, int], columns: int, optimizer: str, dtype: torch.dtype
) -> None:
    of_sources, num_rows, first_row = drawn
    sources: list[Source] = []
    for number, of_bags in enumerate(of_sources):
        ids = torch.tensor([i for bag in of_bags for i in bag], dtype=torch.int64)
        source = make_source(ids, torch.tensor([len(bag) for bag in of_bags]), columns, seed=number)
        sources.append(Source(ids, source.offsets, source.gradients.to(dtype)))
    weights = torch.randn(num_rows, columns, generator=torch.Generator().manual_seed(num_rows))
    assert_as_reference(weights, sources, optimizer, first_row, gradient_multiplier=0.75)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("columns", [3, 64])
def test_some_rows_very_often_and_most_never(optimizer: str, columns: int) -> None:
    source = make_source(draw_zipf_ids(20_000, 10_000), torch.ones(20_000), columns)
    weights = torch.randn(10_000, columns)
    assert_as_reference(weights, [source], optimizer)
    never = torch.ones(10_000, dtype=torch.bool)
    never[source.ids] = False
    assert torch.equal(update_copies(weights, torch.empty(0), [source])[0][never], weights[never])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("columns", [3, 64])
@pytest.mark.parametrize("threads", [1, 3])
def test_gradients_are_clipped_to_as_much_for_each_occurrence(optimizer: str, columns: int, threads: int) -> None:
    """Rows of small and large weights, some in many blocks of occurrences: the floor, the ratio or neither decides."""
    torch.set_num_threads(threads)
    num_rows = 2000
    source = make_source(draw_zipf_ids(30_000, num_rows), torch.full((10_000,), 3), columns)
    weights = torch.randn(num_rows, columns) * torch.logspace(-3, 1, num_rows).unsqueeze(1)
    state = draw_state(optimizer, num_rows, columns)
    terms = {"first_row": 0, "optimizer": optimizer, "learning_rate": 0.5, "gradient_multiplier": 0.25}
    terms |= {"clip_ratio": 0.25, "clip_floor": 0.1 * columns**0.5}
    expected = update_in_float64(weights, state, [source], **terms)  # pyright: ignore[reportArgumentType]
    clipped = update_copies(weights, state, [source], **terms)
    for got, wanted in zip(clipped, expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=2e-6, atol=2e-6)
    unclipped = update_copies(weights, state, [source], **{**terms, "clip_floor": 0.0})
    is_moved = (clipped[0] != weights).any(dim=1)
    is_clipped = (clipped[0] != unclipped[0]).any(dim=1)
    assert is_clipped.any()
    assert (is_moved & ~is_clipped).any()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.5, 1.0])
def test_the_rate_of_a_row_follows_its_occurrences(optimizer: str, exponent: float) -> None:
    num_rows, columns = 2000, 16
    source = make_source(draw_zipf_ids(30_000, num_rows), torch.full((10_000,), 3), columns)
    weights, state = torch.randn(num_rows, columns), draw_state(optimizer, num_rows, columns)
    terms = {"first_row": 0, "optimizer": optimizer, "learning_rate": 0.01, "gradient_multiplier": 0.25}
    terms |= {"count_exponent": exponent}
    expected = update_in_float64(weights, state, [source], **terms)  # pyright: ignore[reportArgumentType]
    for got, wanted in zip(update_copies(weights, state, [source], **terms), expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=2e-6, atol=2e-6)
    once = update_copies(weights, state, [source], **{**terms, "count_exponent": 0.0})[0]
    counts = torch.bincount(source.ids, minlength=num_rows)
    followed = update_copies(weights, state, [source], **terms)[0]
    assert torch.equal(followed[counts <= 1], once[counts <= 1])
    assert not torch.equal(followed[counts > 1], once[counts > 1])


@pytest.mark.parametrize("num_rows", [1, 3])
def test_a_row_that_every_sample_names_is_summed_as_in_float64(num_rows: int) -> None:
    """All gradients of one sign: summed one by one in fp32 they are off by 1e-4."""
    num_samples = 300_000
    source = make_source(torch.randint(0, num_rows, (num_samples,)), torch.ones(num_samples), 8)
    source = Source(source.ids, source.offsets, source.gradients.abs())
    weights = torch.zeros(num_rows, 8)
    exact = torch.zeros(num_rows, 8, dtype=torch.float64).index_add_(0, source.ids, source.gradients.double())
    (moved, _) = update_copies(weights, torch.empty(0), [source], learning_rate=1.0)
    torch.testing.assert_close(-moved.double(), exact, rtol=1e-7, atol=0)


@pytest.mark.parametrize("num_rows", [1, 2, 256, 2048, 2049, 100_000, 4_200_000])
def test_tables_of_any_length_up_to_their_last_row(num_rows: int) -> None:
    """One, two and three passes of the sort."""
    ids = torch.cat([torch.tensor([num_rows - 1, 0, num_rows, num_rows - 1]), torch.randint(0, num_rows, (2000,))])
    source = make_source(ids, torch.ones(len(ids)), 1)
    assert_as_reference(torch.randn(num_rows, 1), [source], "rowwise_adagrad")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("num_rows", [3, 5000])
def test_the_number_of_threads_does_not_change_a_bit(optimizer: str, num_rows: int) -> None:
    source = make_source(draw_zipf_ids(60_000, num_rows), torch.full((20_000,), 3), 16)
    weights, state = torch.randn(num_rows, 16), draw_state(optimizer, num_rows, 16)
    torch.set_num_threads(1)
    alone = update_copies(weights, state, [source], optimizer=optimizer)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        together = update_copies(weights, state, [source], optimizer=optimizer)
        assert all(torch.equal(one, other) for one, other in zip(together, alone, strict=True))


@pytest.mark.parametrize("cuts", [[0, 9000, 18_000], [0, 0, 1, 17_000, 17_000, 18_000], list(range(0, 18_001, 1000))])
def test_how_bags_are_cut_into_sources_does_not_change_a_bit(cuts: list[int]) -> None:
    source = make_source(draw_zipf_ids(54_000, 4000), torch.full((18_000,), 3), 16)
    parts = [
        Source(source.ids, source.offsets[begin : end + 1], source.gradients[begin:end])
        for begin, end in pairwise(cuts)
    ]
    weights = torch.randn(4000, 16)
    whole = update_copies(weights, torch.zeros(4000), [source], optimizer="rowwise_adagrad")
    torch.set_num_threads(2)
    cut = update_copies(weights, torch.zeros(4000), parts, optimizer="rowwise_adagrad")
    assert all(torch.equal(one, other) for one, other in zip(cut, whole, strict=True))


def test_two_shards_by_rows_are_the_whole_table() -> None:
    source = make_source(torch.randint(0, 500, (6000,)), torch.full((2000,), 3), 64)
    weights, state = torch.randn(500, 64), torch.zeros(500)
    whole = update_copies(weights, state, [source], optimizer="rowwise_adagrad")
    shards = [
        update_copies(weights[rows], state[rows], [source], first_row=rows.start, optimizer="rowwise_adagrad")
        for rows in (slice(0, 123), slice(123, 500))
    ]
    assert torch.equal(torch.cat([shard[0] for shard in shards]), whole[0])
    assert torch.equal(torch.cat([shard[1] for shard in shards]), whole[1])


def test_gradients_may_be_some_columns_of_a_wider_block() -> None:
    source = make_source(torch.randint(0, 50, (300,)), torch.ones(300), 8)
    block = torch.full((300, 3, 8), torch.nan)
    block[:, 1] = source.gradients
    weights = torch.randn(50, 8)
    apart = Source(source.ids, source.offsets, block[:, 1])
    assert torch.equal(
        update_copies(weights, torch.empty(0), [apart])[0], update_copies(weights, torch.empty(0), [source])[0]
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_16_bits_are_read_exactly_whatever_their_size(dtype: torch.dtype) -> None:
    """Subnormal ones, the largest, infinities and no numbers."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype).view(-1, 64)
    source = Source(torch.arange(len(every)), torch.arange(len(every) + 1), every)
    (moved, _) = update_copies(torch.zeros(len(every), 64), torch.empty(0), [source], learning_rate=1.0)
    torch.testing.assert_close(-moved, every.float(), rtol=0, atol=0, equal_nan=True)


FBGEMM_OPTIMIZERS = {
    "sgd": (EmbOptimType.EXACT_SGD, ()),
    "rowwise_adagrad": (EmbOptimType.EXACT_ROWWISE_ADAGRAD, ("sum",)),
    "adagrad": (EmbOptimType.EXACT_ADAGRAD, ("sum",)),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_three_steps_are_those_of_fbgemm(optimizer: str) -> None:
    num_rows, columns = 200, 32
    kind, has_state = FBGEMM_OPTIMIZERS[optimizer]
    theirs = SplitTableBatchedEmbeddingBagsCodegen(
        [(num_rows, columns, EmbeddingLocation.HOST, ComputeDevice.CPU)], optimizer=kind, learning_rate=0.05, eps=EPS
    )
    theirs.init_embedding_weights_uniform(-1, 1)
    weights = theirs.split_embedding_weights()[0].detach().clone()
    state = torch.zeros_like(draw_state(optimizer, num_rows, columns))
    for step in range(3):
        source = make_source(draw_zipf_ids(900, num_rows, seed=step), torch.full((300,), 3), columns, seed=step)
        source = Source(source.ids, source.offsets, source.gradients * 1e-3)
        theirs(source.ids, source.offsets).backward(source.gradients)
        update(weights, state, [source], optimizer=optimizer, learning_rate=0.05)
    torch.testing.assert_close(weights, theirs.split_embedding_weights()[0].detach(), rtol=1e-5, atol=1e-6)
    if has_state:
        (sums,) = theirs.split_optimizer_states()[0]
        torch.testing.assert_close(state.flatten(), sums.flatten(), rtol=1e-5, atol=1e-9)


def test_no_sources_and_no_bags_move_nothing() -> None:
    weights = torch.randn(5, 4)
    nothing = Source(torch.empty(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), torch.empty(0, 4))
    for sources in ([], [nothing], [nothing, nothing]):
        assert torch.equal(update_copies(weights, torch.empty(0), sources)[0], weights)


def make_indices(*values: int) -> list[torch.Tensor]:
    return [torch.tensor(values, dtype=torch.int64)]


REFUSED: dict[str, dict[str, Any]] = {
    "weights: Half, must be float32": {"weights": torch.zeros(4, 2, dtype=torch.float16)},
    "weights: must be contiguous": {"weights": torch.zeros(4, 4)[:, :2]},
    "optimizer: adam, must be sgd, rowwise_adagrad or adagrad": {"optimizer": "adam"},
    "state: shape [3], must be [4]": {"state": torch.zeros(3)},
    "state: Double, must be float32": {"state": torch.zeros(4, dtype=torch.float64)},
    "state: must be contiguous": {"state": torch.zeros(8)[::2]},
    "state: shape [4], must be [4, 2]": {"optimizer": "adagrad"},
    "state: shape [4], must be empty for sgd": {"optimizer": "sgd"},
    "offsets: 0 tensors, must be 1, one for each of ids": {"offsets": []},
    "gradients: 2 tensors, must be 1, one for each of ids": {"gradients": [torch.zeros(2, 2)] * 2},
    "ids[0]: Float, must be int64": {"ids": [torch.zeros(3)]},
    "offsets[0]: the last is 4, but there are 3 ids": {"offsets": make_indices(0, 1, 4)},
    "offsets[0]: some offset is less than the one before": {"offsets": make_indices(0, 3, 2)},
    "offsets[0]: the first is -2, must not be negative": {"offsets": make_indices(-2, 3, 3)},
    "gradients[0]: shape [3, 2], must be [2, 2]": {"gradients": [torch.zeros(3, 2)]},
    "gradients[0]: Double, must be float32, float16 or bfloat16": {"gradients": [torch.zeros(2, 2).double()]},
    "gradients[0]: the numbers of a row must lie side by side": {"gradients": [torch.zeros(2, 2).T]},
    "first_row: -3, must not be negative": {"first_row": -3},
    "gradients[1]: Half, must be as gradients[0], Float": {
        "ids": make_indices(0, 1, 2) * 2,
        "offsets": make_indices(0, 1, 3) * 2,
        "gradients": [torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.float16)],
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_arguments_are_refused_by_name_and_nothing_changes(message: str) -> None:
    arguments: dict[str, Any] = {
        "weights": torch.zeros(4, 2),
        "state": torch.zeros(4),
        "ids": make_indices(0, 1, 2),
        "offsets": make_indices(0, 1, 3),
        "gradients": [torch.ones(2, 2)],
        "first_row": 0,
        "optimizer": "rowwise_adagrad",
        "learning_rate": 0.1,
        "eps": EPS,
        "gradient_multiplier": 1.0,
    }
    with pytest.raises((ValueError, TypeError, IndexError)) as refused:
        torch.ops.dlrm_tables.update(**{**arguments, **REFUSED[message]})
    assert message in str(refused.value)
    assert not arguments["weights"].any()
    torch.ops.dlrm_tables.update(**arguments)
    assert arguments["weights"].any()
