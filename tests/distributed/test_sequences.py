"""Sequences, trained on ranks, against the reference in float64; stopped and continued."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlrm.config import MomentsConfig, VarianceReductionConfig
from sharding.jagged import JaggedIds, SequenceShape
from tests.distributed.reference import GlobalBatch, draw_batches
from tests.distributed.saving import PartialRun, train_up_to
from tests.distributed.training import TrainingSetting, assert_follows_reference
from tests.dlrm.model.small_models import make_small_model
from tests.rank_pool.pool import RankPools

SEQUENCES = (SequenceShape(1, 9), SequenceShape(0, 4))
TABLE_ROWS = (("a", 40), ("b", 60), ("c", 5))
"""Few rows, whose weights are large: layer normalization divides by them, and fp32 would differ from float64."""
KINDS: dict[str, dict[str, Any]] = {
    "din": {"kind": "din", "hidden": [8]},
    "transformer": {"kind": "transformer", "num_layers": 2, "hidden": [16]},
    "hstu": {"kind": "hstu", "num_layers": 2},
}


def make_setting(kind: str, architecture: str = "dlrm", **changes: Any) -> TrainingSetting:
    model = make_small_model(architecture, embedding_dim=16, bottom_mlp=[8, 16], attention=KINDS[kind])
    plain = TrainingSetting(256, 64, "rowwise_adagrad", dense_rate=0.003, table_rate=0.005, sequences=SEQUENCES)
    return replace(plain, model=model, table_rows=TABLE_ROWS, **changes)


def draw_sequence_batches(setting: TrainingSetting, number: int, num_empty: int = 0) -> list[GlobalBatch]:
    """Draw sequences of any length, mostly short ones and some as long as they may be; the last batch may be short."""
    rows = [rows for _, rows in setting.table_rows]
    random, batches = np.random.default_rng(1), draw_batches(number, setting.global_size, rows, 5, num_empty)
    changed: list[GlobalBatch] = []
    for batch in batches:
        lengths, values = [batch.bags.lengths], [batch.bags.values]
        for shape in setting.sequences:
            drawn = random.random(setting.global_size) ** 2 * (shape.max_length + 1)
            lengths.append(drawn.astype(np.int32)[None])
            values.append((rows[shape.target] * random.random(lengths[-1].sum()) ** 2).astype(np.int64))
        changed.append(replace(batch, bags=JaggedIds(np.concatenate(values), np.concatenate(lengths))))
    return changed


@pytest.mark.parametrize("transport", ["memory", "network"])
@pytest.mark.parametrize("world_size", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_attention_follows_the_reference(
    rank_pools: RankPools, kind: str, world_size: int, transport: str
):
    setting = make_setting(kind, plan="row_wise", transport=transport)
    assert_follows_reference(rank_pools, world_size, setting, draw_sequence_batches(setting, 4, num_empty=100))


@pytest.mark.parametrize(
    "architecture",
    ["deepfm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gdcn", "finalmlp", "masknet", "wukong"))],
)
def test_every_architecture_takes_sequences(rank_pools: RankPools, architecture: str):
    setting = make_setting("din", architecture)
    assert_follows_reference(rank_pools, 2, setting, draw_sequence_batches(setting, 3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "world_size", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_a_stopped_run_with_sequences_continues_bit_for_bit(
    rank_pools: RankPools, tmp_path: Path, world_size: int, kind: str
):
    setting = make_setting(
        kind, dense_optimizer="adam", moments=MomentsConfig(every=2), variance_reduction=VarianceReductionConfig()
    )
    batches, pool = draw_sequence_batches(setting, 6), rank_pools.of(world_size)
    straight: list[PartialRun] = pool.run(train_up_to, tmp_path / "straight", setting, batches, 6)
    pool.run(train_up_to, tmp_path / "stopped", setting, batches, 3)
    after: list[PartialRun] = pool.run(train_up_to, tmp_path / "stopped", setting, batches, 6)
    for run, whole in zip(after, straight, strict=True):
        assert run.started_at == 3
        assert run.losses == whole.losses[3:]
    assert all(torch.tensor(run.losses).isfinite().all() for run in after)
