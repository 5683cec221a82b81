"""K-FAC against its formula in float64, where it must equal plain steps, and its independence of ranks and chunks."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch.nn import functional as F

from dlrm.config import ModelConfig, MomentsConfig, PreconditionerConfig, VarianceReductionConfig
from dlrm.model.mlp import Linear
from dlrm.preconditioners.kfac import Factor
from sharding.comm.process_groups import Ranks
from tests.cases import list_cases
from tests.distributed.reference import GlobalBatch, ReferenceModel, draw_batches
from tests.distributed.test_variance_reduction import EXACT, largest_difference
from tests.distributed.training import TrainedModel, TrainingSetting, draw_initial_tables, train, train_parts
from tests.dlrm.model.small_models import make_small_model
from tests.rank_pool.pool import RankPools

DAMPING = 0.01
GROUPS = MomentsConfig(estimator="groups", num_groups=8)
KFAC = PreconditionerConfig(damping=DAMPING, max_change=0.0, num_samples=150)
SETTING = TrainingSetting(256, 64, "sgd", dense_rate=0.05, table_rate=0.1, preconditioner=KFAC)
DCN = ModelConfig(
    architecture="dcn_v2", embedding_dim=8, bottom_mlp=[16, 8], top_mlp=[16, 1], cross_layers=2, cross_rank=4
)
FINAL = make_small_model("finalmlp", embedding_dim=8, bottom_mlp=[16, 8], top_mlp=[32, 16, 1])
MODELS = {"dlrm": SETTING.model, "dcn_v2": DCN, "finalmlp": FINAL}


def draw(number: int, setting: TrainingSetting = SETTING, num_empty: int = 0) -> list[GlobalBatch]:
    return draw_batches(
        number, setting.global_size, [rows for _, rows in setting.table_rows], num_empty_in_last=num_empty
    )


class NaturalReference(ReferenceModel):
    """Steps along the natural gradient: factors from the gradients of single samples, in full batches."""

    max_divergence = 1e-3

    def precondition(self, batch: GlobalBatch, gradients: list[torch.Tensor], rate: float) -> list[torch.Tensor]:
        if batch.num_empty == 0:
            self.factors = self.measure(batch)
        natural = dict[str, torch.Tensor]()
        by_name = dict(zip(dict(self.model.named_parameters()), gradients, strict=True))
        for name, (a, g) in self.factors.items():
            pi = torch.sqrt((a.trace() / len(a)) / (g.trace() / len(g)))
            left = torch.linalg.inv(g + DAMPING**0.5 / pi * torch.eye(len(g), dtype=g.dtype))
            right = torch.linalg.inv(a + DAMPING**0.5 * pi * torch.eye(len(a), dtype=a.dtype))
            natural[f"{name}.weight"] = left @ by_name[f"{name}.weight"] @ right
            if f"{name}.bias" in by_name:
                natural[f"{name}.bias"] = by_name[f"{name}.bias"] / (g.diagonal() + DAMPING)
        divergence = rate**2 * sum(torch.sum(natural[name] * gradient) for name, gradient in by_name.items())
        factor = min(1.0, (self.max_divergence / float(divergence)) ** 0.5)
        return [factor * natural[name] for name in by_name]

    def measure(self, batch: GlobalBatch) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Measure A and G of every layer: a row of inputs is x, a row of the outputs' gradient before the ReLU is d."""
        seen = dict[str, tuple[torch.Tensor, torch.Tensor]]()
        layers = {name: layer for name, layer in self.model.named_modules() if isinstance(layer, Linear)}
        hooks = [
            layer.register_forward_hook(lambda _, given, made, name=name: seen.update({name: (given[0], made)}))
            for name, layer in layers.items()
        ]
        logits = self.model(torch.from_numpy(batch.dense).double(), self.pool(batch))[: KFAC.num_samples]
        for hook in hooks:
            hook.remove()
        loss_sum = F.binary_cross_entropy_with_logits(
            logits, torch.from_numpy(batch.labels)[: KFAC.num_samples].double(), reduction="sum"
        )
        gradients = torch.autograd.grad(loss_sum, [made for _, made in seen.values()])
        factors = dict[str, tuple[torch.Tensor, torch.Tensor]]()
        for (name, (x, y)), gradient in zip(seen.items(), gradients, strict=True):
            d = gradient * (y > 0) if layers[name].is_activated else gradient
            measured = x[: KFAC.num_samples].detach()
            factors[name] = measured.T @ measured / len(measured), d.T @ d / len(measured)
        return factors


@cache
def run_reference(model: str) -> tuple[list[float], NaturalReference]:
    """Train for fifty steps."""
    setting = replace(SETTING, model=MODELS[model])
    reference = NaturalReference(
        draw_initial_tables(setting), setting.table_optimizer, setting.seed, setting.model, setting.mean_weight
    )
    batches = draw(50, num_empty=50)
    return [reference.step(batch, setting.dense_rate, setting.table_rate) for batch in batches], reference


def train_on_first_rank(rank_pools: RankPools, setting: TrainingSetting, world_size: int, number: int) -> TrainedModel:
    return rank_pools.of(world_size).run(train, setting, draw(number, setting, num_empty=50))[0]


TELLING = [(1, "dlrm"), (2, "dlrm"), (2, "dcn_v2"), (2, "finalmlp")]


@pytest.mark.parametrize(("world_size", "model"), list_cases(TELLING, (1, 2, 4), MODELS))
def test_fifty_steps_follow_the_formula(rank_pools: RankPools, world_size: int, model: str):
    losses, reference = run_reference(model)
    setting, batches = replace(SETTING, model=MODELS[model]), draw(50, num_empty=50)
    by_rank: list[TrainedModel] = rank_pools.of(world_size).run(train, setting, batches)
    for trained in by_rank:
        torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(losses), rtol=1e-5, atol=0)
        for name, expected in reference.model.state_dict().items():
            assert (trained.dense[name] - expected).abs().max() < 1e-4 * expected.abs().max(), name
    plain = rank_pools.of(world_size).run(train, replace(setting, preconditioner=None), batches)[0]
    assert losses[-1] < plain.losses[-1]


def train_with_identities(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]) -> TrainedModel:
    """Train with identity matrices in the place of all factors."""
    parts = setting.build_parts(ranks)
    assert parts.preconditioner is not None
    for name, state in parts.preconditioner.state_dict().items():
        for kind in () if name == "num_batches" else ("inputs", "outputs"):
            for matrix in (state[f"{kind}_value"], state[f"{kind}_inverse"]):
                matrix.copy_(torch.eye(len(matrix)))
            state[f"{kind}_next_batch"].fill_(1_000_000)
    return train_parts(ranks, setting, parts, batches)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_with_identities_for_factors_it_is_the_optimizer_alone(rank_pools: RankPools, optimizer: str):
    alone = replace(SETTING, dense_optimizer=optimizer, preconditioner=None)
    undamped = PreconditionerConfig(damping=1e-30, max_divergence=None)
    setting = replace(alone, preconditioner=undamped)
    found: TrainedModel = rank_pools.of(2).run(train_with_identities, setting, draw(6))[0]
    expected: TrainedModel = rank_pools.of(2).run(train, alone, draw(6))[0]
    assert largest_difference(found, expected) == 0.0


@pytest.mark.parametrize(
    ("world_size", "moments", "optimizer"),
    list_cases([(2, EXACT, "momentum"), (2, GROUPS, "adam")], (2, 4), (EXACT, GROUPS), ("momentum", "adam")),
)
def test_with_variance_reduction_any_number_of_ranks_and_any_chunk_agree(
    rank_pools: RankPools, world_size: int, moments: MomentsConfig, optimizer: str
):
    setting = replace(
        SETTING,
        dense_optimizer=optimizer,
        dense_rate=0.01,
        moments=moments,
        variance_reduction=VarianceReductionConfig(),
        preconditioner=PreconditionerConfig(damping=DAMPING, num_samples=100),
    )
    one = train_on_first_rank(rank_pools, setting, 1, 10)
    several = train_on_first_rank(rank_pools, replace(setting, chunk_size=32), world_size, 10)
    assert largest_difference(several, one) < 1e-3
    assert largest_difference(one, train_on_first_rank(rank_pools, replace(setting, preconditioner=None), 1, 10)) > 0.01


def test_a_factor_that_hardly_changes_is_computed_ever_less_often():
    factor, steady = Factor(torch.zeros(9)), torch.eye(3)
    due = list[int]()
    for number in range(40):
        factor.sums.copy_(steady if number < 21 else 5 * steady)
        if number >= factor.next_batch:
            due.append(number)
            factor.take(1.0, number, factor.choose_interval(1.0, 0.1))
    # Twice one batch, since nothing is before the first; then 1 + 1, 1 + 2, 2 + 3, 3 + 5 batches. At 20 it is as
    # before, 5 + 8; at 33 it is another: 13 // 2.
    assert due == [0, 1, 2, 4, 7, 12, 20, 33, 39]
