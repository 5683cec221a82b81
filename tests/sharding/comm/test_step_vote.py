"""The vote of all ranks at the end of a step."""

import math

import pytest
import torch

from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, StepDecision, StepVote, all_reduce_votes
from tests.rank_pool.pool import RankPools

STOP, SAVE = StepVote(is_stop_requested=True), StepVote(is_ready_to_save=True)


def vote(ranks: Ranks, cases: list[list[tuple[StepVote, float]]]) -> list[StepDecision]:
    return [
        all_reduce_votes(ranks, of_rank, torch.tensor(loss, dtype=torch.float64))
        for of_rank, loss in (case[ranks.rank] for case in cases)
    ]


@pytest.mark.parametrize("world_size", [1, 2])
def test_one_vote_stops_all_ranks_and_a_checkpoint_needs_all_votes(rank_pools: RankPools, world_size: int):
    votes = [DEFAULT_VOTE, STOP, SAVE]
    cases = [[(last, 2.0), *[(SAVE, 0.5)] * (world_size - 1)][::-1] for last in votes]
    for decisions in rank_pools.of(world_size).run(vote, cases):
        assert [decision.is_stop_requested for decision in decisions] == [False, True, False]
        assert [decision.is_save_due for decision in decisions] == [False, False, True]
        assert all(decision.loss_sum == 2.0 + 0.5 * (world_size - 1) for decision in decisions)
        assert all(decision.is_finite for decision in decisions)


@pytest.mark.parametrize("losses", [(math.nan, 1.0), (1.0, math.inf), (-math.inf, math.inf)])
def test_a_loss_that_is_not_finite_on_one_rank_is_a_nan_on_all(rank_pools: RankPools, losses: tuple[float, float]):
    for (decision,) in rank_pools.of(2).run(vote, [[(DEFAULT_VOTE, loss) for loss in losses]]):
        assert not decision.is_finite
        assert math.isnan(decision.loss_sum)
