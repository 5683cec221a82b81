"""The pool of ranks: a rank that fails is shown at once, and does not spoil the tests that follow."""

import pytest
import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from tests.rank_pool.pool import RankError, RankPools


def fail_on_rank_1(ranks: Ranks) -> None:
    if ranks.rank == 1:
        raise ValueError("it was me")
    dist.all_reduce(torch.zeros(1), group=ranks.dense_group)


def sum_of_ranks(ranks: Ranks) -> float:
    total = torch.tensor([float(ranks.rank)])
    dist.all_reduce(total, group=ranks.dense_group)
    return total.item()


def test_a_failing_rank_is_shown_and_the_next_test_has_fresh_ranks(rank_pools: RankPools):
    with pytest.raises(RankError, match=r"rank 1:(.|\n)*it was me"):
        rank_pools.of(2).run(fail_on_rank_1)
    assert rank_pools.of(2).run(sum_of_ranks) == [1.0, 1.0]
