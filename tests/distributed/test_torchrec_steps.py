"""Steps with TorchRec's tables equal those of the other transports up to rounding, and continue each other's runs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.distributed.reference import GlobalBatch, add_lists_and_weights, draw_batches
from tests.distributed.saving import PartialRun, train_up_to
from tests.distributed.training import TrainedModel, TrainingSetting, train
from tests.rank_pool.pool import RankPools

SETTING = TrainingSetting(2048, 100, "rowwise_adagrad", transport="torchrec", dense_rate=0.05, table_rate=0.01)
ROWS = [rows for _, rows in SETTING.table_rows]
TELLING = {("torchrec", "memory", "rowwise_adagrad", 0.0), ("memory", "torchrec", "adagrad", 0.01)}


def draw_batches_with_a_bad_one() -> list[GlobalBatch]:
    batches = add_lists_and_weights(draw_batches(5, 2048, ROWS, seed=4, num_empty_in_last=700), ROWS)
    batches[2].dense[77, 3] = torch.nan
    return batches


@pytest.mark.parametrize("initial_accumulator", [0.0, 0.01])
@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("world_size", [2, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 4))])
def test_steps_by_torchrec_are_those_over_memory_up_to_rounding(
    rank_pools: RankPools, world_size: int, plan: str, initial_accumulator: float
):
    setting = replace(SETTING, plan=plan, initial_accumulator=initial_accumulator)
    batches = draw_batches_with_a_bad_one()
    by_torchrec: list[TrainedModel] = rank_pools.of(world_size).run(train, setting, batches)
    over_memory: list[TrainedModel] = rank_pools.of(world_size).run(
        train, replace(setting, transport="memory"), batches
    )
    for ours, expected in zip(by_torchrec, over_memory, strict=True):
        assert ours.dropped == expected.dropped == [False, False, True, False, False]
        torch.testing.assert_close(
            torch.tensor(ours.losses), torch.tensor(expected.losses), rtol=1e-5, atol=0, equal_nan=True
        )
        for (*shard, weights), (*same_shard, same_weights) in zip(ours.shards, expected.shards, strict=True):
            assert shard == same_shard
            torch.testing.assert_close(weights, same_weights, rtol=0, atol=1e-5 * same_weights.abs().max().item())


@pytest.mark.parametrize(
    ("first", "then", "table_optimizer", "initial_accumulator"),
    [
        pytest.param(*transports, *optimizer, marks=() if (*transports, *optimizer) in TELLING else pytest.mark.slow)
        for transports in [
            ("torchrec", "memory"),
            ("memory", "torchrec"),
            ("torchrec", "network"),
            ("network", "torchrec"),
        ]
        for optimizer in [("sgd", 0.0), ("rowwise_adagrad", 0.0), ("adagrad", 0.0), ("adagrad", 0.01)]
    ],
)
def test_a_run_continues_with_another_transport_as_the_straight_run(
    rank_pools: RankPools, tmp_path: Path, first: str, then: str, table_optimizer: str, initial_accumulator: float
):
    """State of the optimizer moves too: without it training would diverge from the second step on."""
    setting = replace(
        SETTING, table_optimizer=table_optimizer, plan="table_wise", initial_accumulator=initial_accumulator
    )
    batches = draw_batches(6, 2048, ROWS, seed=5)
    run = rank_pools.of(2).run
    straight: list[PartialRun] = run(train_up_to, tmp_path / "straight", replace(setting, transport=first), batches, 6)
    run(train_up_to, tmp_path / "moved", replace(setting, transport=first), batches, 3)
    moved: list[PartialRun] = run(train_up_to, tmp_path / "moved", replace(setting, transport=then), batches, 6)
    for ours, expected in zip(moved, straight, strict=True):
        assert ours.started_at == 3
        torch.testing.assert_close(torch.tensor(ours.losses), torch.tensor(expected.losses[3:]), rtol=1e-5, atol=0)
        for name, tensor in expected.shards.items():
            torch.testing.assert_close(ours.shards[name], tensor, rtol=0, atol=1e-5 * tensor.abs().max().item())
