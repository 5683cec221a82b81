"""Steps over the network transport, slice by slice, equal those over shared memory."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch

from dlrm.config import MomentsConfig, VarianceReductionConfig
from sharding.comm.gradient_buffer import AllReducer, make_all_reducer
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, add_lists_and_weights, draw_batches
from tests.distributed.saving import PartialRun, train_up_to
from tests.distributed.training import TrainedModel, TrainingSetting, train
from tests.rank_pool.pool import RankPools

SETTING = TrainingSetting(4096, 256, "rowwise_adagrad", transport="network", dense_rate=0.05, table_rate=0.01)
ROWS = [rows for _, rows in SETTING.table_rows]
SLICE_BYTES = 300 * len(ROWS) * SETTING.model.embedding_dim * 4
"""300 samples, so that slices end within chunks, and a share has several."""


def make_memory_all_reducer(ranks: Ranks, num_elements: int, dtype: torch.dtype, **_: bool) -> AllReducer:
    return make_all_reducer(ranks, num_elements, dtype, is_in_memory=True)


def train_in_slices(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]) -> TrainedModel:
    """Its dense sums are in memory: an all-reduce adds them up in another order, and rounds otherwise."""
    in_slices = mock.patch("sharding.planner.slice_size.SLICE_BYTES", SLICE_BYTES)
    with in_slices, mock.patch("sharding.comm.gradient_buffer.make_all_reducer", make_memory_all_reducer):
        return train(ranks, setting, batches)


def resume_in_slices(
    ranks: Ranks, directory: Path, setting: TrainingSetting, batches: list[GlobalBatch], up_to: int
) -> PartialRun:
    with mock.patch("sharding.planner.slice_size.SLICE_BYTES", SLICE_BYTES):
        return train_up_to(ranks, directory, setting, batches, up_to)


def draw_batches_with_a_bad_one() -> list[GlobalBatch]:
    batches = add_lists_and_weights(draw_batches(5, 4096, ROWS, seed=4, num_empty_in_last=1500), ROWS)
    batches[2].dense[77, 3] = torch.nan
    return batches


@pytest.mark.parametrize(
    "moments",
    [
        MomentsConfig(estimator="exact", fraction=1.0),
        MomentsConfig(estimator="exact", fraction=0.75),
        MomentsConfig(estimator="groups"),
        None,
    ],
    ids=["exact", "on a share", "groups", "no moments"],
)
@pytest.mark.parametrize("world_size", [2, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 4))])
def test_steps_in_slices_are_those_over_memory_to_the_bit(
    rank_pools: RankPools, world_size: int, moments: MomentsConfig | None
):
    reduction = moments and VarianceReductionConfig()
    setting = replace(SETTING, moments=moments, variance_reduction=reduction)
    batches = draw_batches_with_a_bad_one()
    over_network: list[TrainedModel] = rank_pools.of(world_size).run(train_in_slices, setting, batches)
    over_memory: list[TrainedModel] = rank_pools.of(world_size).run(
        train, replace(setting, transport="memory"), batches
    )
    for ours, expected in zip(over_network, over_memory, strict=True):
        assert ours.dropped == expected.dropped == [False, False, True, False, False]
        torch.testing.assert_close(
            torch.tensor(ours.losses), torch.tensor(expected.losses), rtol=0, atol=0, equal_nan=True
        )
        assert all(torch.equal(ours.dense[name], tensor) for name, tensor in expected.dense.items())
        for (*shard, weights), (*same_shard, same_weights) in zip(ours.shards, expected.shards, strict=True):
            assert shard == same_shard
            assert torch.equal(weights, same_weights), shard


def test_a_run_over_the_network_continues_over_memory(rank_pools: RankPools, tmp_path: Path):
    setting = replace(SETTING, moments=MomentsConfig(fraction=0.5), variance_reduction=VarianceReductionConfig())
    batches = draw_batches(6, 4096, ROWS, seed=5)
    straight: list[PartialRun] = rank_pools.of(2).run(resume_in_slices, tmp_path / "straight", setting, batches, 6)
    rank_pools.of(2).run(resume_in_slices, tmp_path / "moved", setting, batches, 3)
    moved: list[PartialRun] = rank_pools.of(2).run(
        train_up_to, tmp_path / "moved", replace(setting, transport="memory"), batches, 6
    )
    for ours, expected in zip(moved, straight, strict=True):
        assert ours.started_at == 3
        assert ours.losses == expected.losses[3:]
        assert all(torch.equal(ours.shards[name], tensor) for name, tensor in expected.shards.items())
