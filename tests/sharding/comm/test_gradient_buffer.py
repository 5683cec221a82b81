"""Sums of the dense gradients over ranks: in shared memory and over the network, step after step."""

import time

import pytest
import torch
from torch import nn

from sharding.comm.gradient_buffer import GradientBuffer, ProcessGroupAllReduce, SharedMemoryAllReduce, make_all_reducer
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from tests.rank_pool.pool import RankPools

SHAPES = [(7, 5), (1,), (300, 11)]
NUM_ELEMENTS = 3336
NUM_STEPS = 8
DROPPED_STEPS = (2, 5)
"""Steps that end with the vote: nothing is summed over ranks."""


def draw_numbers(rank: int, step: int) -> torch.Tensor:
    """Draw the numbers [3 P] that a rank adds to gradient and extra sums in a step."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(3 * NUM_ELEMENTS, generator=generator, dtype=torch.float64)


def has_extra_sums(step: int) -> bool:
    return step % 3 != 1


def sum_step_by_step(
    ranks: Ranks, is_in_memory: bool, dtype: torch.dtype
) -> list[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Return the whole buffer and the parameters' gradients after each step; ranks are slow in turns."""
    parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES]
    buffer = GradientBuffer(parameters, ranks, num_extra_sums=2, is_in_memory=is_in_memory)
    results: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
    for step in range(NUM_STEPS):
        buffer.zero()
        parts = draw_numbers(ranks.rank, step).chunk(3)
        for flat, numbers in zip((buffer.gradient, *buffer.extra_sums), parts, strict=True):
            flat.add_(numbers.to(dtype))
        all_reduce_votes(ranks, DEFAULT_VOTE)
        if step in DROPPED_STEPS:
            continue
        if step % ranks.world_size == ranks.rank:
            time.sleep(0.02)
        work = buffer.start_all_reduce(with_extra_sums=has_extra_sums(step))
        if (step + 1) % ranks.world_size == ranks.rank:
            time.sleep(0.02)
        work.wait()
        gradients = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]
        results.append((torch.cat([buffer.gradient, *buffer.extra_sums]), gradients))
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("world_size", "is_in_memory"), [(1, False), (2, True), (2, False), (4, True), (4, False)])
def test_every_rank_has_the_sums_of_all_step_after_step(
    rank_pools: RankPools, world_size: int, is_in_memory: bool, dtype: torch.dtype
):
    by_rank = rank_pools.of(world_size).run(sum_step_by_step, is_in_memory, dtype)
    steps = [step for step in range(NUM_STEPS) if step not in DROPPED_STEPS]
    rounding = torch.finfo(dtype).eps
    for number, step in enumerate(steps):
        of_ranks = [draw_numbers(rank, step).to(dtype) for rank in range(world_size)]
        expected = torch.stack(of_ranks).double().sum(dim=0)
        num_summed = 3 * NUM_ELEMENTS if has_extra_sums(step) else NUM_ELEMENTS
        for rank, results in enumerate(by_rank):
            found, gradients = results[number]
            assert torch.equal(found[:num_summed], by_rank[0][number][0][:num_summed])
            assert torch.equal(torch.cat([gradient.flatten() for gradient in gradients]), found[:NUM_ELEMENTS])
            assert torch.equal(found[num_summed:], of_ranks[rank][num_summed:])
            error = (found[:num_summed].double() - expected[:num_summed]).abs().max()
            assert error <= 8 * world_size * rounding


def choose_all_reducers(ranks: Ranks) -> list[type]:
    return [
        type(make_all_reducer(ranks, 4, torch.float32, is_in_memory=is_in_memory)) for is_in_memory in (True, False)
    ]


def test_a_single_rank_shares_no_memory(rank_pools: RankPools):
    assert rank_pools.of(2).run(choose_all_reducers) == [[SharedMemoryAllReduce, ProcessGroupAllReduce]] * 2
    assert rank_pools.of(1).run(choose_all_reducers) == [[ProcessGroupAllReduce] * 2]


def sum_ones(ranks: Ranks, num_elements: int) -> list[float]:
    all_reducer = make_all_reducer(ranks, num_elements, torch.float32, is_in_memory=True)
    all_reducer.buffer.add_(1.0)
    all_reduce_votes(ranks, DEFAULT_VOTE)
    all_reducer.start(num_elements).wait()
    return all_reducer.buffer.tolist()


@pytest.mark.parametrize("num_elements", [0, 1, 16, 17, 33])
def test_ranks_without_a_part_of_their_own_get_the_sum_too(rank_pools: RankPools, num_elements: int):
    assert rank_pools.of(4).run(sum_ones, num_elements) == [[4.0] * num_elements] * 4
