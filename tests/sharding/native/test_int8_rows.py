"""Rows of int8 in the native operators: their format, and the rounding of an update, bit for bit on every processor."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sharding.embedding.int8_rows import to_fp32, to_stored
from tests.sharding.native.reference import (
    Source,
    draw_state,
    draw_zipf_ids,
    make_source,
    pool_in_float64,
    update,
    update_in_float64,
)

COLUMNS = [1, 3, 16, 64, 100]
KEY = -(2**62) + 12345


def draw_rows(num_rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, columns, generator=torch.Generator().manual_seed(seed))


def measure_quanta(stored: torch.Tensor) -> torch.Tensor:
    """[R, 1] scales"""
    return stored[:, -8:-4].contiguous().view(torch.float32)


def draw_fractions(key: int, rows: NDArray[np.int64], columns: int) -> NDArray[np.int64]:
    """22 random bits of each weight [R, C], from the definitions of splitmix64 and MurmurHash3."""
    with np.errstate(over="ignore"):
        bits = np.uint64(key % 2**64) + rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        first = ((bits ^ bits >> np.uint64(31)) >> np.uint64(32)).astype(np.uint32)
        hashed = first[:, None] + np.arange(columns, dtype=np.uint32) * np.uint32(0x9E3779B9)
        hashed = (hashed ^ hashed >> np.uint32(16)) * np.uint32(0x85EBCA6B)
        hashed = (hashed ^ hashed >> np.uint32(13)) * np.uint32(0xC2B2AE35)
        return ((hashed ^ hashed >> np.uint32(16)) >> np.uint32(10)).astype(np.int64)


def encode_randomly(values: NDArray[np.float32], fractions: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Bytes [R, C + 8] of rows [R, C]."""
    low = values.min(axis=1, keepdims=True) + np.float32(0)
    bits = ((values.max(axis=1, keepdims=True) - low) / np.float32(255)).view(np.uint32)
    scale = ((bits + np.uint32(0xFD)) & np.uint32(0xFFFFFF00)).view(np.float32)
    scale[scale < 1e-30] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        places = np.where(scale > 0, (values - low) * (np.float32(2**22) / scale), np.float32(0))
    fixed = np.minimum(places, np.float32(255 * 2**22)).astype(np.int64)
    quotients = ((fixed + fractions) >> 22).astype(np.uint8)
    return np.concatenate([quotients, scale.view(np.uint8), low.view(np.uint8)], axis=1)


@pytest.mark.parametrize("columns", COLUMNS)
def test_bags_are_the_sums_of_the_numbers_that_rows_stand_for(columns: int) -> None:
    stored = to_stored(draw_rows(50, columns), torch.uint8)
    source = make_source(torch.randint(0, 60, (300,)), torch.full((100,), 3), columns)
    out = torch.full((100, columns), torch.nan)
    torch.ops.dlrm_tables.pool(stored, source.ids, source.offsets, 5, out, False)
    scales, offsets = (stored[:, -8:].contiguous().view(torch.float32).double()[:, [place]] for place in (0, 1))
    exact = stored[:, :-8].double() * scales + offsets
    torch.testing.assert_close(out.double(), pool_in_float64(exact, source, 5), rtol=0, atol=1e-5)
    torch.testing.assert_close(to_fp32(stored).double(), exact, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("spread", [1.0, 1e-6, 0.0])
def test_an_update_rounds_to_the_same_bits_on_every_processor(columns: int, spread: float) -> None:
    """With a learning rate of 1 and one id a row, fp32 subtracts exactly what is given: all else is the rounding."""
    num_rows = 300
    stored = to_stored(0.5 + spread * draw_rows(num_rows, columns), torch.uint8)
    source = make_source(torch.randperm(num_rows), torch.ones(num_rows), columns)
    source = Source(source.ids, source.offsets, source.gradients * spread * 0.1)
    by_row = source.gradients[source.ids.argsort()]
    values = (to_fp32(stored) - by_row).numpy()
    expected = encode_randomly(values, draw_fractions(KEY, np.arange(num_rows), columns))
    update(stored, torch.empty(0), [source], learning_rate=1.0, rounding_key=KEY)
    assert np.array_equal(stored.numpy(), expected)


@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf])
@pytest.mark.parametrize("column", [0, 2])
def test_a_number_that_is_not_finite_is_not_rounded_away(spoilt: float, column: int) -> None:
    """A later lookup then is not finite either, and its step is dropped, as with fp32."""
    stored = to_stored(draw_rows(3, 5), torch.uint8)
    source = make_source(torch.tensor([1]), torch.ones(1), 5)
    source.gradients[0, column] = spoilt
    update(stored, torch.empty(0), [source], rounding_key=KEY)
    assert to_fp32(stored).isfinite().all(dim=1).tolist() == [True, False, True]


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad"])
@pytest.mark.parametrize("columns", [3, 64])
def test_an_update_is_that_of_fp32_to_within_a_quantum_of_the_new_row(optimizer: str, columns: int) -> None:
    """Rows in many blocks of occurrences, in few and in none; state is fp32."""
    num_rows = 3000
    source = make_source(draw_zipf_ids(20_000, num_rows), torch.ones(20_000), columns)
    stored = to_stored(draw_rows(num_rows, columns), torch.uint8)
    before, state = stored.clone(), draw_state(optimizer, num_rows, columns)
    terms = {"first_row": 0, "optimizer": optimizer, "learning_rate": 0.05, "gradient_multiplier": 0.5}
    terms |= {"clip_ratio": 0.25, "clip_floor": 0.1}
    expected = update_in_float64(to_fp32(stored), state, [source], **terms)  # pyright: ignore[reportArgumentType]
    update(stored, state, [source], **terms, rounding_key=KEY)  # pyright: ignore[reportArgumentType]
    error = (to_fp32(stored).double() - expected[0]).abs()
    assert (error <= 1.0001 * measure_quanta(stored) + 1e-5).all()
    torch.testing.assert_close(state.double(), expected[1], rtol=2e-6, atol=2e-6)
    never = torch.ones(num_rows, dtype=torch.bool)
    never[source.ids] = False
    assert torch.equal(stored[never], before[never])


def test_updates_below_a_quantum_add_up_which_the_nearest_number_would_swallow() -> None:
    """200 updates of a twentieth of a quantum move rows by 10 quanta on average; each one rounded to the nearest, none.

    One column at each end keeps the grid as it is.
    """
    num_rows, columns, steps = 400, 16, 200
    values = draw_rows(num_rows, columns) * 0.2
    values[:, 0], values[:, -1] = -1.0, 1.0
    stored = to_stored(values, torch.uint8)
    quantum = measure_quanta(stored)[0].item()
    gradients = torch.full((num_rows, columns), 0.05 * quantum)
    gradients[:, [0, -1]] = 0.0
    source = Source(torch.arange(num_rows), torch.arange(num_rows + 1), gradients)
    before = to_fp32(stored)
    for step in range(steps):
        update(stored, torch.empty(0), [source], learning_rate=1.0, rounding_key=step * 1_000_003)
    moved = ((before - to_fp32(stored)) / quantum)[:, 1:-1]
    # A weight moves by 200 draws of probability 0.05: standard deviation 3.1, of the mean of 5,600 weights 0.04.
    assert moved.mean().item() == pytest.approx(10.0, abs=0.2)
    assert moved.std().item() == pytest.approx(3.08, abs=0.2)
    nearest = to_stored(before - gradients, torch.uint8)
    assert torch.equal(nearest[:, :-8], to_stored(before, torch.uint8)[:, :-8])


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_fifty_updates_stay_as_near_to_float64_as_their_roundings(optimizer: str) -> None:
    """The sum of t independent roundings, each with a mean square of at most a quarter of a quantum's."""
    num_rows, columns, steps = 200, 32, 50
    stored = to_stored(draw_rows(num_rows, columns), torch.uint8)
    weights, state = to_fp32(stored).double(), draw_state(optimizer, num_rows, columns)
    exact_state, quantum = state.double(), torch.zeros(num_rows, 1)
    for step in range(steps):
        source = make_source(torch.randint(0, num_rows, (600,)), torch.full((200,), 3), columns, seed=step)
        terms = {"first_row": 0, "optimizer": optimizer, "learning_rate": 0.02, "gradient_multiplier": 1.0}
        weights, exact_state = update_in_float64(weights, exact_state, [source], **terms)  # pyright: ignore[reportArgumentType]
        update(stored, state, [source], **terms, rounding_key=step * 7919)  # pyright: ignore[reportArgumentType]
        quantum = torch.maximum(quantum, measure_quanta(stored))
    error = (to_fp32(stored).double() - weights) / quantum
    deviation = 0.5 * steps**0.5
    assert error.square().mean().sqrt() <= deviation
    assert error.abs().max() <= 6 * deviation
    assert abs(error.mean().item()) <= 5 * deviation / error.numel() ** 0.5


def test_random_bits_are_even_and_differ_by_row_column_and_key() -> None:
    fractions = draw_fractions(KEY, np.arange(2000), 64) / 2**22
    others = draw_fractions(KEY + 1, np.arange(2000), 64) / 2**22
    counts = np.histogram(fractions, bins=16, range=(0, 1))[0]
    assert np.abs(counts - counts.mean()).max() < 5 * counts.mean() ** 0.5
    shifted = (fractions[1:], fractions[:-1]), (fractions[:, 1:], fractions[:, :-1]), (fractions, others)
    for one, other in shifted:
        # 126,000 pairs: the standard deviation of a correlation of nothing is 0.003.
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.015


@pytest.mark.parametrize("cuts", [[0, 18_000], [0, 1, 17_000, 17_000, 18_000]])
@pytest.mark.parametrize("threads", [1, 3])
def test_neither_threads_nor_sources_change_a_bit(cuts: list[int], threads: int) -> None:
    whole = make_source(draw_zipf_ids(54_000, 4000), torch.full((18_000,), 3), 16)
    parts = [Source(whole.ids, whole.offsets[a : b + 1], whole.gradients[a:b]) for a, b in pairwise(cuts)]
    stored, state = to_stored(draw_rows(4000, 16), torch.uint8), torch.zeros(4000)
    expected = stored.clone()
    torch.set_num_threads(2)
    update(expected, torch.zeros(4000), [whole], optimizer="rowwise_adagrad", rounding_key=KEY)
    torch.set_num_threads(threads)
    update(stored, state, parts, optimizer="rowwise_adagrad", rounding_key=KEY)
    assert torch.equal(stored, expected)


@pytest.mark.parametrize("spread", [1.0, 1e-5])
def test_rows_on_their_own_grid_are_stored_again_as_they_are(spread: float) -> None:
    stored = to_stored(spread * draw_rows(5000, 16), torch.uint8)
    assert torch.equal(to_stored(to_fp32(stored), torch.uint8), stored)
    assert torch.equal(to_stored(torch.full((3, 4), 0.3), torch.uint8)[:, :8], torch.zeros(3, 8, dtype=torch.uint8))


def test_numbers_are_stored_as_near_as_half_a_quantum() -> None:
    rows = draw_rows(5000, 64)
    stored = to_stored(rows, torch.uint8)
    assert ((to_fp32(stored) - rows).abs() <= 0.50001 * measure_quanta(stored)).all()
    whole_range = rows.amax(dim=1, keepdim=True) - rows.amin(dim=1, keepdim=True)
    assert (measure_quanta(stored) <= 1.0001 * whole_range / 255).all()


def test_wrong_rows_are_refused_by_name() -> None:
    ids, offsets, out = torch.tensor([0]), torch.tensor([0, 1]), torch.zeros(1, 2)
    with pytest.raises(ValueError, match="must have 8 bytes more than columns"):
        torch.ops.dlrm_tables.pool(torch.zeros(4, 8, dtype=torch.uint8), ids, offsets, 0, out, False)
    with pytest.raises(ValueError, match="the columns of weights"):
        torch.ops.dlrm_tables.pool(torch.zeros(4, 11, dtype=torch.uint8), ids, offsets, 0, out, False)
