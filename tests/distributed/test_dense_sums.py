"""Sums of the dense gradients over ranks: in memory and over the network, step after step."""

import time
from typing import Literal

import pytest
import torch
from torch import nn

from sharding.agree import NO_WISHES, agree
from sharding.dense import FlatSums
from sharding.ranks import Ranks
from sharding.sums import InMemory, OverNetwork, make_adder
from tests.distributed.rank_pool import RankPools

SHAPES = [(7, 5), (1,), (300, 11)]
NUM_ELEMENTS = 3336
WAYS = ["memory", "network"]


def given(rank: int, step: int) -> torch.Tensor:
    """[3 P] What a rank adds in a step."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(3 * NUM_ELEMENTS, generator=generator, dtype=torch.float64)


def added_up(
    ranks: Ranks, transport: Literal["memory", "network"], dtype: torch.dtype, with_extra: bool
) -> list[tuple[torch.Tensor, list[torch.Tensor]]]:
    """All that the sums hold after each step, and the parameters' gradients; ranks are slow in turns."""
    parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES]
    sums = FlatSums(parameters, ranks, num_extra=2, transport=transport)
    results: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
    for step in range(8):
        sums.zero()
        for flat, of_rank in zip((sums.gradient, *sums.extra), given(ranks.rank, step).chunk(3), strict=True):
            flat.add_(of_rank.to(dtype))
        agree(ranks, NO_WISHES)
        if step % ranks.world_size == ranks.rank:
            time.sleep(0.02)
        pending = sums.start(with_extra=with_extra)
        if (step + 1) % ranks.world_size == ranks.rank:
            time.sleep(0.02)
        pending.wait()
        gradients = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]
        results.append((torch.cat([sums.gradient, *sums.extra]), gradients))
    return results


@pytest.mark.parametrize("with_extra", [True, False], ids=["all", "gradient alone"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("transport", WAYS)
def test_every_rank_has_the_sums_of_all_step_after_step(
    rank_pools: RankPools, transport: str, world_size: int, dtype: torch.dtype, with_extra: bool
):
    by_rank = rank_pools.of(world_size).run(added_up, transport, dtype, with_extra)
    for step in range(8):
        of_ranks = [given(rank, step).to(dtype) for rank in range(world_size)]
        expected = torch.stack(of_ranks).double().sum(dim=0)
        for rank, results in enumerate(by_rank):
            found, gradients = results[step]
            assert torch.equal(found[:NUM_ELEMENTS], by_rank[0][step][0][:NUM_ELEMENTS])
            torch.testing.assert_close(torch.cat([g.flatten() for g in gradients]), found[:NUM_ELEMENTS])
            if not with_extra:
                assert torch.equal(found[NUM_ELEMENTS:], of_ranks[rank][NUM_ELEMENTS:])
                found, expected = found[:NUM_ELEMENTS], expected[:NUM_ELEMENTS]
            torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def ways_taken(ranks: Ranks) -> list[type]:
    return [type(make_adder(ranks, 4, torch.float32, asked)) for asked in ("auto", "memory", "network")]


def test_ranks_of_one_machine_add_up_in_memory_unless_the_network_is_asked_for(rank_pools: RankPools):
    assert rank_pools.of(2).run(ways_taken) == [[InMemory, InMemory, OverNetwork]] * 2
    assert rank_pools.of(1).run(ways_taken) == [[OverNetwork] * 3]


def in_few_elements(ranks: Ranks, num_elements: int) -> list[float]:
    adder = make_adder(ranks, num_elements, torch.float32, "memory")
    adder.buffer.add_(1.0)
    agree(ranks, NO_WISHES)
    adder.start(num_elements).wait()
    return adder.buffer.tolist()


@pytest.mark.parametrize("num_elements", [0, 1, 16, 17, 33])
def test_ranks_without_a_part_of_their_own_get_the_sum_too(rank_pools: RankPools, num_elements: int):
    assert rank_pools.of(4).run(in_few_elements, num_elements) == [[4.0] * num_elements] * 4
