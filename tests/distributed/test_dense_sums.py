"""Sums of the dense gradients over ranks: in memory and over the network, step after step."""

import time

import pytest
import torch
from torch import nn

from sharding.comm.gradient_buffer import GradientBuffer, ProcessGroupAllReduce, SharedMemoryAllReduce, make_all_reducer
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from tests.distributed.rank_pool import RankPools

SHAPES = [(7, 5), (1,), (300, 11)]
NUM_ELEMENTS = 3336


def given(rank: int, step: int) -> torch.Tensor:
    """[3 P] What a rank adds in a step."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(3 * NUM_ELEMENTS, generator=generator, dtype=torch.float64)


def has_extra(step: int) -> bool:
    return step % 3 != 1


def is_dropped(step: int) -> bool:
    """Agreed on, and nothing is added up."""
    return step in (2, 5)


def added_up(ranks: Ranks, is_in_memory: bool, dtype: torch.dtype) -> list[tuple[torch.Tensor, list[torch.Tensor]]]:
    """All that the sums hold after each step, and the parameters' gradients; ranks are slow in turns."""
    parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES]
    sums = GradientBuffer(parameters, ranks, num_extra_sums=2, is_in_memory=is_in_memory)
    results: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
    for step in range(8):
        sums.zero()
        for flat, of_rank in zip((sums.gradient, *sums.extra_sums), given(ranks.rank, step).chunk(3), strict=True):
            flat.add_(of_rank.to(dtype))
        all_reduce_votes(ranks, DEFAULT_VOTE)
        if is_dropped(step):
            continue
        if step % ranks.world_size == ranks.rank:
            time.sleep(0.02)
        pending = sums.start_all_reduce(with_extra_sums=has_extra(step))
        if (step + 1) % ranks.world_size == ranks.rank:
            time.sleep(0.02)
        pending.wait()
        gradients = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]
        results.append((torch.cat([sums.gradient, *sums.extra_sums]), gradients))
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("world_size", "is_in_memory"), [(1, False), (2, True), (2, False), (4, True), (4, False)])
def test_every_rank_has_the_sums_of_all_step_after_step(
    rank_pools: RankPools, world_size: int, is_in_memory: bool, dtype: torch.dtype
):
    by_rank = rank_pools.of(world_size).run(added_up, is_in_memory, dtype)
    steps = [step for step in range(8) if not is_dropped(step)]
    rounding = torch.finfo(dtype).eps
    for number, step in enumerate(steps):
        of_ranks = [given(rank, step).to(dtype) for rank in range(world_size)]
        expected = torch.stack(of_ranks).double().sum(dim=0)
        num_summed = 3 * NUM_ELEMENTS if has_extra(step) else NUM_ELEMENTS
        for rank, results in enumerate(by_rank):
            found, gradients = results[number]
            assert torch.equal(found[:num_summed], by_rank[0][number][0][:num_summed])
            assert torch.equal(torch.cat([gradient.flatten() for gradient in gradients]), found[:NUM_ELEMENTS])
            assert torch.equal(found[num_summed:], of_ranks[rank][num_summed:])
            error = (found[:num_summed].double() - expected[:num_summed]).abs().max()
            assert error <= 8 * world_size * rounding


def ways_taken(ranks: Ranks) -> list[type]:
    return [
        type(make_all_reducer(ranks, 4, torch.float32, is_in_memory=is_in_memory)) for is_in_memory in (True, False)
    ]


def test_a_rank_alone_shares_memory_with_nobody(rank_pools: RankPools):
    assert rank_pools.of(2).run(ways_taken) == [[SharedMemoryAllReduce, ProcessGroupAllReduce]] * 2
    assert rank_pools.of(1).run(ways_taken) == [[ProcessGroupAllReduce] * 2]


def in_few_elements(ranks: Ranks, num_elements: int) -> list[float]:
    adder = make_all_reducer(ranks, num_elements, torch.float32, is_in_memory=True)
    adder.buffer.add_(1.0)
    all_reduce_votes(ranks, DEFAULT_VOTE)
    adder.start(num_elements).wait()
    return adder.buffer.tolist()


@pytest.mark.parametrize("num_elements", [0, 1, 16, 17, 33])
def test_ranks_without_a_part_of_their_own_get_the_sum_too(rank_pools: RankPools, num_elements: int):
    assert rank_pools.of(4).run(in_few_elements, num_elements) == [[4.0] * num_elements] * 4
