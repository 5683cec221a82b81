"""Batch augmentation against its formula in float64, where it must equal plain steps, and its independence of ranks."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from dlrm.config import AugmentationConfig, ConfigError, PreconditionerConfig, VarianceReductionConfig
from dlrm.config.job import parse_job
from dlrm.data.errors import DataError
from dlrm.train.augmentation import draw_kept, make_copy_key
from sharding.comm.process_groups import Ranks
from tests.cases import list_cases
from tests.distributed.reference import GlobalBatch, ReferenceModel, add_lists_and_weights, draw_batches
from tests.distributed.test_variance_reduction import GROUPS, largest_difference
from tests.distributed.training import TrainedModel, TrainingSetting, assemble_tables, draw_initial_tables, train
from tests.rank_pool.pool import RankPools

DROPOUT = AugmentationConfig(copies=3, rate=0.3)
ADVERSARIAL = AugmentationConfig(method="adversarial", copies=3, strength=0.2)
SETTING = TrainingSetting(256, 48, "sgd", dense_rate=0.1, table_rate=0.1, mean_weight=1.8)
TABLE_ROWS = [rows for _, rows in SETTING.table_rows]


def draw(number: int, num_empty: int = 50) -> list[GlobalBatch]:
    return add_lists_and_weights(draw_batches(number, 256, TABLE_ROWS, num_empty_in_last=num_empty), TABLE_ROWS)


class AugmentedReference(ReferenceModel):
    """Trains on the mean loss of the copies, one formula after another."""

    config = DROPOUT
    num_steps = 0

    def compute_loss(
        self, dense: torch.Tensor, pooled: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None
    ) -> torch.Tensor:
        loss = super().compute_loss(dense, pooled, labels, weights)
        losses, moved = [loss], pooled
        for copy in range(1, self.config.copies):
            if self.config.rate is not None:
                key = make_copy_key(SETTING.seed, self.num_steps, copy)
                num_features = dense.shape[1] + pooled.shape[1]
                kept = draw_kept(key, np.arange(len(labels)), num_features, self.config.rate)
                factors = torch.from_numpy(kept).double() / (1 - self.config.rate)
                of_dense, of_pooled = factors.split([dense.shape[1], pooled.shape[1]], dim=1)
                loss = super().compute_loss(dense * of_dense, pooled * of_pooled.unsqueeze(2), labels, weights)
            else:
                (slope,) = torch.autograd.grad(loss, moved, retain_graph=True)
                for sample, row in enumerate(slope):
                    if row.norm() > 0:
                        slope[sample] = row / row.norm() * self.config.strength * pooled[sample].detach().norm()
                moved = moved + slope
                loss = super().compute_loss(dense, moved, labels, weights)
            losses.append(loss)
        self.num_steps += 1
        return torch.stack(losses).mean()


METHODS = {"feature_dropout": DROPOUT, "adversarial": ADVERSARIAL}


@cache
def run_reference(method: str) -> tuple[list[float], AugmentedReference]:
    """Train for fifty steps; ranks and moments make no difference to them."""
    reference = AugmentedReference(
        draw_initial_tables(SETTING), SETTING.table_optimizer, SETTING.seed, SETTING.model, SETTING.mean_weight
    )
    reference.config = METHODS[method]
    return [reference.step(batch, SETTING.dense_rate, SETTING.table_rate) for batch in draw(50)], reference


def train_on_first_rank(rank_pools: RankPools, setting: TrainingSetting, world_size: int, number: int) -> TrainedModel:
    return rank_pools.of(world_size).run(train, setting, draw(number))[0]


TELLING = [(1, "feature_dropout", False), (1, "adversarial", True), (2, "feature_dropout", True)]


@pytest.mark.parametrize(
    ("world_size", "method", "is_measured"),
    list_cases([*TELLING, (2, "adversarial", False)], (1, 2, 4), METHODS, (False, True)),
)
def test_fifty_steps_follow_the_formula(rank_pools: RankPools, world_size: int, method: str, is_measured: bool):
    losses, reference = run_reference(method)
    setting = replace(SETTING, augmentation=METHODS[method], moments=GROUPS if is_measured else None)
    by_rank: list[TrainedModel] = rank_pools.of(world_size).run(train, setting, draw(50))
    for trained in by_rank:
        torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(losses), rtol=1e-5, atol=0)
        for name, expected in reference.model.state_dict().items():
            assert (trained.dense[name] - expected).abs().max() < 1e-4 * expected.abs().max(), name
    for name, table in assemble_tables([trained.shards for trained in by_rank], setting).items():
        expected = reference.tables[name].detach()
        assert (table - expected).abs().max() < 1e-4 * expected.abs().max(), name


@pytest.mark.parametrize("method", ["feature_dropout", "adversarial"])
def test_one_copy_is_no_augmentation_to_the_bit(rank_pools: RankPools, method: str):
    setting = replace(SETTING, table_optimizer="rowwise_adagrad", dense_optimizer="adam", dense_rate=0.01)
    single = AugmentationConfig.model_validate({"method": method, "copies": 1})
    found: TrainedModel = rank_pools.of(2).run(train, replace(setting, augmentation=single), draw(6))[0]
    expected: TrainedModel = rank_pools.of(2).run(train, setting, draw(6))[0]
    assert found.losses == expected.losses
    assert largest_difference(found, expected) == 0.0
    for one, other in zip(found.shards, expected.shards, strict=True):
        assert torch.equal(one[3], other[3])


def test_copies_that_drop_nothing_count_as_one_row_in_moments_and_factors(rank_pools: RankPools):
    """Variance reduction and K-FAC get the same numbers as from each sample once."""
    setting = replace(
        SETTING,
        dense_optimizer="momentum",
        dense_rate=0.01,
        moments=GROUPS,
        variance_reduction=VarianceReductionConfig(),
        preconditioner=PreconditionerConfig(damping=0.01),
    )
    alike = replace(setting, augmentation=AugmentationConfig(copies=4, rate=1e-12))
    found, expected = (train_on_first_rank(rank_pools, each, 2, 8) for each in (alike, setting))
    assert largest_difference(found, expected) < 1e-4
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)


@pytest.mark.parametrize("augmentation", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_with_variance_reduction_any_number_of_ranks_and_any_chunk_agree(
    rank_pools: RankPools, world_size: int, augmentation: AugmentationConfig
):
    setting = replace(
        SETTING,
        table_optimizer="rowwise_adagrad",
        dense_optimizer="adam",
        dense_rate=0.01,
        table_rate=0.02,
        augmentation=augmentation,
        moments=GROUPS,
        variance_reduction=VarianceReductionConfig(),
    )
    one = train_on_first_rank(rank_pools, setting, 1, 10)
    several = train_on_first_rank(rank_pools, replace(setting, chunk_size=13), world_size, 10)
    assert largest_difference(several, one) < 1e-3
    assert several.losses == pytest.approx(one.losses, rel=1e-5)
    assert largest_difference(train_on_first_rank(rank_pools, replace(setting, augmentation=None), 1, 10), one) > 0.01


def test_copies_and_steps_drop_features_independently_at_the_given_rate():
    positions = np.arange(20_000)
    kept = [draw_kept(make_copy_key(7, step, copy), positions, 10, 0.3) for step, copy in [(0, 1), (0, 2), (1, 1)]]
    for one in kept:
        assert one.mean(axis=0) == pytest.approx(np.full(10, 0.7), abs=0.02)
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert (kept[one] & kept[other]).mean() == pytest.approx(0.49, abs=0.01)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"augmentation": {}, "moments": {}}, "moments.estimator"),
        ({"augmentation": {"strength": 0.1}}, "augmentation.strength"),
        ({"augmentation": {"method": "adversarial", "rate": 0.1}}, "augmentation.rate"),
        ({"augmentation": {"method": "mixup"}}, "augmentation.method"),
        ({"augmentation": {"rate": 0}}, "augmentation.rate"),
        (
            {"augmentation": {}, "resources": {"gpus_per_worker": 1}},
            "resources.cuda_graphs",
        ),
    ],
)
def test_what_means_nothing_is_refused(section: dict[str, object], field: str):
    with pytest.raises(ConfigError) as raised:
        parse_job({"data": {"format": "synthetic"}, **section})
    assert [error.field for error in raised.value.errors] == [field]


@pytest.mark.parametrize(("reduction", "estimator"), [(None, None), ({}, "groups")])
def test_moments_that_are_left_out_fit_copies(reduction: dict[str, object] | None, estimator: str | None):
    job = parse_job({"data": {"format": "synthetic"}, "augmentation": {}, "variance_reduction": reduction})
    assert (job.moments and job.moments.estimator) == estimator


def build(ranks: Ranks, setting: TrainingSetting) -> str:
    with pytest.raises(DataError) as raised:
        setting.build_parts(ranks)
    return raised.value.field or ""


def test_an_adversary_without_embeddings_to_move_is_refused(rank_pools: RankPools):
    setting = replace(SETTING, augmentation=ADVERSARIAL, table_rows=())
    assert rank_pools.of(1).run(build, setting) == ["augmentation.method"]
