"""Pruning in training: its formula in float64, its mask under every optimizer and average, and its share of the run."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from dlrm.config import (
    AveragingConfig,
    ConfigError,
    JobConfig,
    ModelConfig,
    MomentsConfig,
    PreconditionerConfig,
    PruningConfig,
    VarianceReductionConfig,
    list_stages,
    parse_job,
)
from dlrm.config.optimizers import SETTINGS
from dlrm.optimizers import LearningRates
from dlrm.train.batch import to_device
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, ReferenceModel, draw_batches
from tests.distributed.training import TrainingSetting, draw_initial_tables, train
from tests.rank_pool.pool import RankPools

PRUNING = PruningConfig(share=0.4, from_fraction=0.1, until_fraction=0.3)
MAX_NORM = 0.05
SETTING = TrainingSetting(
    256, 64, dense_rate=0.3, table_rate=0.3, pruning=PRUNING, dense_settings={"max_gradient_norm": MAX_NORM}
)
DCN = ModelConfig(
    architecture="dcn_v2", embedding_dim=8, bottom_mlp=[16, 8], top_mlp=[16, 1], cross_layers=2, cross_rank=4
)


def draw(number: int) -> list[GlobalBatch]:
    return draw_batches(number, 256, [rows for _, rows in SETTING.table_rows], num_empty_in_last=50)


def share_in_paper(step: int) -> float:
    """Zhu and Gupta 2017, equation 1, for steps 10 to 30 and cuts of at most one step."""
    return 0.4 + (0.0 - 0.4) * (1 - min(max(step - 10, 0) / 20, 1)) ** 3


class MaskedReference(ReferenceModel):
    """SGD by gradients of limited norm; before each step the smallest weights of all matrices together become zero,
    and stay so: they have no gradient, so that it counts in no norm."""

    def prune(self, share: float) -> None:
        matrices = [weight for weight in self.model.parameters() if weight.dim() == 2]
        everything = torch.cat([weight.detach().abs().flatten() for weight in matrices])
        num = round(share * len(everything))
        if num == 0:
            self.masks = [torch.ones_like(weight) for weight in matrices]
            return
        bound = everything.sort().values[num - 1]
        self.masks = [(weight.detach().abs() > bound).double() for weight in matrices]
        self.mask()

    def precondition(self, batch: GlobalBatch, gradients: list[torch.Tensor], rate: float) -> list[torch.Tensor]:
        del batch, rate
        masks = iter(self.masks)
        masked = [gradient * next(masks) if gradient.dim() == 2 else gradient for gradient in gradients]
        norm = torch.sqrt(sum((gradient.square().sum() for gradient in masked), start=torch.zeros(()).double()))
        return [gradient * min(1.0, MAX_NORM / float(norm)) for gradient in masked]

    @torch.no_grad()
    def mask(self) -> None:
        matrices = [weight for weight in self.model.parameters() if weight.dim() == 2]
        for weight, mask in zip(matrices, self.masks, strict=True):
            weight.mul_(mask)


@pytest.mark.parametrize("model", [SETTING.model, DCN], ids=["dlrm", "dcn_v2"])
@pytest.mark.parametrize("world_size", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_fifty_steps_follow_the_formula(rank_pools: RankPools, world_size: int, model: ModelConfig):
    setting, batches = replace(SETTING, model=model), draw(50)
    reference = MaskedReference(draw_initial_tables(setting), "sgd", setting.seed, model, 1.0)
    losses: list[float] = []
    for step, batch in enumerate(batches):
        reference.prune(share_in_paper(step))
        losses.append(reference.step(batch, setting.dense_rate, setting.table_rate))
        reference.mask()
    for trained in rank_pools.of(world_size).run(train, setting, batches):
        torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(losses), rtol=1e-5, atol=0)
        for name, expected in reference.model.state_dict().items():
            assert (trained.dense[name] - expected).abs().max() < 1e-4 * expected.abs().max(), name
            assert torch.equal(trained.dense[name] == 0, expected == 0) or name.endswith("bias"), name


@pytest.mark.parametrize("optimizer", sorted(SETTINGS.keys()))
def test_pruned_weights_are_zero_after_every_step_in_the_averages_too(rank_pools: RankPools, optimizer: str):
    """Variance reduction, K-FAC and momentum move whole matrices; averages hold weights from before."""
    is_averaging = optimizer in ("schedule_free",)
    setting = replace(
        SETTING,
        dense_settings={},
        dense_rate=0.01,
        dense_optimizer=optimizer,
        pruning=PruningConfig(share=0.5, from_fraction=0.03, until_fraction=0.06),
        moments=MomentsConfig(every=1),
        variance_reduction=VarianceReductionConfig(),
        preconditioner=None if optimizer == "soap" else PreconditionerConfig(),
        averaging=None if is_averaging else AveragingConfig(half_life_fraction=1.0),
    )
    num, zeros = rank_pools.of(1).run(count_zeros, setting, draw(12))[0]
    assert [moved for *_, moved in zeros] == [0] * 12
    expected = [round(num * setting.rates_at(step).pruned) for step in range(12)]
    assert expected[2:7] == [0, round(num * setting.rates_at(3).pruned), expected[4], expected[5], round(num / 2)]
    assert [trained for trained, *_ in zeros] == expected
    assert [evaluated for _, evaluated, _ in zeros] == expected


def count_zeros(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]) -> tuple[int, list[Any]]:
    """Return the number of elements of all matrices, and after each step how many are zero in training, how many in
    evaluation, and how many of the former had a gradient."""
    parts, zeros = setting.build_parts(ranks), list[Any]()
    matrices = [weight for weight in parts.model.parameters() if weight.dim() == 2]
    assert parts.evaluated is not None

    def count() -> int:
        return sum(int((matrix == 0).sum()) for matrix in matrices)

    for index, batch in enumerate(batches):
        share = to_device(replace(setting.cut_share(batch, ranks), index=index), ranks.device)
        parts.step(share, setting.rates_at(index))
        if parts.average is not None:
            parts.average.update(256 * (index + 1))
        trained = count()
        moved = sum(int(((matrix == 0) & (matrix.grad != 0)).sum()) for matrix in matrices)
        with parts.evaluated.swap_in():
            zeros.append((trained, count(), moved))
    return sum(matrix.numel() for matrix in matrices), zeros


def test_the_share_follows_the_samples_of_a_run() -> None:
    document = {"data": {"format": "synthetic"}, "batch": {"global_size": 1000}, "run": {"keep_model": "last"}}
    job = JobConfig.model_validate({**document, "pruning": {"share": 0.4, "from_fraction": 0.1, "until_fraction": 0.3}})
    (stage,) = list_stages(job, 100_000)
    rates = LearningRates(job, 100_000, stage)
    found = [rates.at(1000 * step, stage).pruned for step in range(100)]
    assert found == pytest.approx([share_in_paper(step) for step in range(100)], abs=1e-12)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pruning": {"from_fraction": 0.5, "until_fraction": 0.2}}, "pruning.until_fraction: 0.2 is before pruning"),
        ({"pruning": {"share": 1.0}}, "pruning.share: "),
        ({"pruning": {"from_fraction": 0.0, "until_fraction": 0.0}}, "(valid: above 0, or a run.warm_start)"),
        ({"run": {"keep_model": "best"}}, "run.keep_model: may leave the model of a step before all of"),
        ({"run": {"patience": 2}}, "run.patience: may leave the model of a step before all of"),
        ({"run": {"target_auc": 0.7}}, "run.target_auc: may leave the model of a step before all of"),
        ({"dense_averaging": {}, "moments": False}, "pruning: is of weights that all ranks share"),
        (
            {"batch": {"global_size": 4096, "growth": {"start_size": 512}}},
            "batch.growth: counts elements that pruning holds at zero",
        ),
    ],
)
def test_what_means_nothing_is_refused(changes: dict[str, Any], said: str) -> None:
    document: dict[str, Any] = {"data": {"format": "synthetic"}, "pruning": {}}
    assert parse_job(document).run.keep_model == "last"
    with pytest.raises(ConfigError) as caught:
        parse_job(document | changes)
    assert said in str(caught.value)
