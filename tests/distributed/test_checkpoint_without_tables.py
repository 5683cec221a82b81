"""A checkpoint of a model without tables, restored on any number of ranks."""

from pathlib import Path

import pytest
import torch

from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.state import TrainingState
from dlrm.checkpoint.write import write_checkpoint
from sharding.comm.process_groups import Ranks
from sharding.embedding import ShardedTables, TableOptimizer
from sharding.planner import Plan
from tests.distributed.training import TrainingSetting
from tests.rank_pool.pool import RankPools


def make_state(ranks: Ranks, weight: float) -> TrainingState:
    """Make the state of a model of one linear layer, one step of SGD after all its weights were `weight`."""
    optimizer = TableOptimizer("rowwise_adagrad", 32.0, 32)
    plan = Plan(ranks.world_size, ())
    tables = ShardedTables(plan, optimizer, ranks, exchange_dtype="fp32", seed=0, chunk_size=4)
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.constant_(model.weight, weight)
    dense_optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.weight.grad = torch.full_like(model.weight, weight)
    dense_optimizer.step()
    return TrainingState(model, tables, dense_optimizer, None, ranks)


def save(ranks: Ranks, path: Path) -> torch.Tensor:
    state, progress = make_state(ranks, 3.0), RunProgress(num_steps=9, step=4)
    identity = RunIdentity.from_job(TrainingSetting(64, 16).resolve_job(ranks.world_size), data_checksum=None)
    write_checkpoint(path, state.collect(progress), progress, identity, ranks.background_group)
    return state.model.get_parameter("weight").detach()


def restore(ranks: Ranks, path: Path, num_ranks: int) -> tuple[int, torch.Tensor, float]:
    state = make_state(ranks, 1.0)
    progress = state.restore(path, num_ranks)
    (kept,) = state.optimizer.state_dict()["state"].values()
    return progress.step, state.model.get_parameter("weight").detach(), kept["momentum_buffer"].mean().item()


@pytest.mark.parametrize("num_after", [1, 2])
def test_a_checkpoint_without_tables_is_saved_and_restored(rank_pools: RankPools, tmp_path: Path, num_after: int):
    saved = rank_pools.of(2).run(save, tmp_path / "step-00000004")[0]
    for step, weight, momentum in rank_pools.of(num_after).run(restore, tmp_path / "step-00000004", 2):
        assert step == 4
        assert torch.equal(weight, saved)
        assert momentum == 3.0
