"""Averages of dense weights in the place of the all-reduce, against the papers' formulas in float64."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dlrm.config import ConfigError, DenseAveragingConfig, parse_job
from dlrm.dense_sync.gossip import list_neighbours
from dlrm.model import make_dense_part
from dlrm.planning.dense_size import count_dense_size
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, ReferenceModel, draw_batches
from tests.distributed.saving import PartialRun, train_up_to
from tests.distributed.test_variance_reduction import largest_difference
from tests.distributed.training import (
    TrainedModel,
    TrainingSetting,
    are_close,
    assemble_tables,
    draw_initial_tables,
    train,
    train_parts,
)
from tests.rank_pool.pool import RankPools
from tests.sharding.read_checkpoint import read_whole

SGD = TrainingSetting(256, 64, "sgd", dense_rate=0.05, table_rate=0.1)
MOMENTUM = replace(SGD, dense_optimizer="momentum", dense_rate=0.02)
BETA = 0.9

LOCAL = replace(SGD, dense_averaging=DenseAveragingConfig(every=4))
ELASTIC = replace(SGD, dense_averaging=DenseAveragingConfig(method="easgd", every=3))
FORCED = replace(SGD, dense_averaging=DenseAveragingConfig(method="easgd", every=1, rho=2.0))
RING = replace(MOMENTUM, dense_averaging=DenseAveragingConfig(method="dmsgd", graph="ring"))
EXPONENTIAL = replace(MOMENTUM, dense_averaging=DenseAveragingConfig(method="dmsgd"))
UNBIASED = replace(MOMENTUM, dense_averaging=DenseAveragingConfig(method="decentlam", graph="ring"))
DECAYED = replace(UNBIASED, dense_rate=0.1, dense_settings={"weight_decay": 1.0})
OF_ALL_RANKS = [1, 2, pytest.param(4, marks=pytest.mark.slow)]


def draw(number: int, num_empty: int = 0) -> list[GlobalBatch]:
    return draw_batches(number, 256, [rows for _, rows in SGD.table_rows], num_empty_in_last=num_empty)


class AveragingReference(ReferenceModel):
    """Ranks with weights x [W, P] and momentum of their own, and tables that all share."""

    def __init__(self, setting: TrainingSetting, num_ranks: int) -> None:
        super().__init__(draw_initial_tables(setting), "sgd", setting.seed)
        assert setting.dense_averaging is not None
        self.config = setting.dense_averaging
        decay = setting.dense_settings.get("weight_decay", 0.0)
        self.models = [
            make_dense_part(setting.model, setting.num_dense, len(self.tables), setting.seed).double()
            for _ in range(num_ranks)
        ]
        self.x = torch.stack([parameters_to_vector(model.parameters()).detach() for model in self.models])
        # Vectors, which are biases, do not decay.
        self.decays = parameters_to_vector(
            [torch.full_like(one, decay if one.dim() > 1 else 0.0) for one in self.models[0].parameters()]
        )
        self.m, self.centre = torch.zeros_like(self.x), self.x[0].clone()
        # The matrix for graphs of equal degree: a rank and its neighbours count alike.
        self.mixing = torch.eye(num_ranks, dtype=torch.float64)
        steps = [1] if self.config.graph == "ring" else [1, 2]
        for rank in range(num_ranks):
            for step in steps:
                self.mixing[rank, (rank + step) % num_ranks] = self.mixing[rank, (rank - step) % num_ranks] = 1.0
        self.mixing /= self.mixing.sum(dim=1, keepdim=True)

    def step_ranks(self, batch: GlobalBatch, t: int, dense_rate: float, table_rate: float) -> float:
        num_ranks, n = len(self.models), batch.num_valid
        dense, labels = (torch.from_numpy(rows)[:n].double() for rows in (batch.dense, batch.labels))
        pooled = self.pool(batch)[:n]
        losses: list[torch.Tensor] = []
        for rank, model in enumerate(self.models):
            vector_to_parameters(self.x[rank].clone(), model.parameters())
            own = slice(rank, n, num_ranks)
            logits = model(dense[own], pooled[own])
            losses.append(F.binary_cross_entropy_with_logits(logits, labels[own], reduction="sum"))
        loss_sum = torch.stack(losses).sum()
        parameters = [parameter for model in self.models for parameter in model.parameters()]
        tables = list(self.tables.values())
        gradients = torch.autograd.grad(loss_sum / len(batch.labels), [*parameters, *tables])
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients[: len(parameters)]])
        self.move(num_ranks * flat.view_as(self.x) + self.decays * self.x, t, dense_rate)
        with torch.no_grad():
            for table, gradient in zip(tables, gradients[len(parameters) :], strict=True):
                table.sub_(table_rate * gradient)
        return loss_sum.item() / n

    def move(self, g: torch.Tensor, t: int, rate: float) -> None:
        """Make step t of all ranks. g: [W, P], the mean gradient of each rank's samples."""
        x, config, num_ranks = self.x, self.config, len(self.models)
        if config.method == "local_sgd":
            self.x = x - rate * g
            if (t + 1) % (config.every or 1) == 0:
                self.x = self.x.mean(dim=0).expand_as(x)
        elif config.method == "easgd":
            alpha = 0.9 / num_ranks if config.rho is None else rate * config.rho
            alpha = alpha if t % (config.every or 1) == 0 else 0.0
            self.x = x - rate * g - alpha * (x - self.centre)
            beta = num_ranks * alpha
            self.centre = (1 - beta) * self.centre + beta * x.mean(dim=0)
        elif config.method == "dmsgd":
            self.m = BETA * self.m + g
            self.x = self.mixing @ (x - rate * self.m)
        else:
            self.m = BETA * self.m + (x - self.mixing @ (x - rate * g)) / rate
            self.x = x - rate * self.m

    def name(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Cut weights [P] into those of the model, by name."""
        model = self.models[0]
        vector_to_parameters(flat.clone(), model.parameters())
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def train_and_swap(
    ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]
) -> tuple[TrainedModel, dict[str, torch.Tensor]]:
    """Train, and also return the model that would be evaluated."""
    parts = setting.build_parts(ranks)
    trained = train_parts(ranks, setting, parts, batches)
    assert parts.evaluated is not None
    with parts.evaluated.swap_in():
        evaluated = {name: tensor.clone() for name, tensor in parts.model.state_dict().items()}
    assert all(torch.equal(tensor, trained.dense[name]) for name, tensor in parts.model.state_dict().items())
    return trained, evaluated


@pytest.mark.parametrize("world_size", OF_ALL_RANKS[1:])
@pytest.mark.parametrize(
    "setting",
    [LOCAL, ELASTIC, FORCED, RING, EXPONENTIAL, UNBIASED, DECAYED],
    ids=["local_sgd", "easgd", "easgd by rho", "dmsgd, ring", "dmsgd, exponential", "decentlam", "decentlam, decay"],
)
def test_fifty_steps_of_every_rank_follow_the_formula(rank_pools: RankPools, setting: TrainingSetting, world_size: int):
    batches, reference = draw(50, num_empty=50), AveragingReference(setting, world_size)
    losses = [reference.step_ranks(batch, t, setting.dense_rate, setting.table_rate) for t, batch in enumerate(batches)]
    by_rank: list[tuple[TrainedModel, dict[str, torch.Tensor]]] = rank_pools.of(world_size).run(
        train_and_swap, setting, batches
    )
    model = reference.centre if reference.config.method == "easgd" else reference.x.mean(dim=0)
    for (trained, evaluated), own in zip(by_rank, reference.x, strict=True):
        torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(losses), rtol=1e-5, atol=0)
        for name, expected in reference.name(own).items():
            assert are_close(trained.dense[name], expected, 1e-4), name
        for name, expected in reference.name(model).items():
            assert are_close(evaluated[name], expected, 1e-4), name
            assert torch.equal(evaluated[name], by_rank[0][1][name]), name
    for name, table in assemble_tables([trained.shards for trained, _ in by_rank], setting).items():
        assert are_close(table, reference.tables[name], 1e-4), name


@pytest.mark.parametrize("world_size", OF_ALL_RANKS[1:])
@pytest.mark.parametrize("setting", [SGD, MOMENTUM], ids=["sgd", "momentum"])
def test_a_mean_after_every_step_equals_the_all_reduce(
    rank_pools: RankPools, setting: TrainingSetting, world_size: int
):
    batches, averaging = draw(20, num_empty=50), DenseAveragingConfig(every=1)
    expected: TrainedModel = rank_pools.of(world_size).run(train, setting, batches)[0]
    found: TrainedModel = rank_pools.of(world_size).run(train, replace(setting, dense_averaging=averaging), batches)[0]
    assert largest_difference(found, expected) < 1e-5


@pytest.mark.parametrize("setting", [LOCAL, ELASTIC, EXPONENTIAL, UNBIASED])
def test_with_one_rank_every_method_is_the_optimizer_alone(rank_pools: RankPools, setting: TrainingSetting):
    batches = draw(5)
    (found,) = rank_pools.of(1).run(train, setting, batches)
    (expected,) = rank_pools.of(1).run(train, replace(setting, dense_averaging=None), batches)
    assert largest_difference(found, expected) == 0.0


@pytest.mark.parametrize("world_size", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("setting", [replace(LOCAL, dense_optimizer="adam", dense_rate=0.01), ELASTIC, RING])
def test_other_ranks_begin_at_the_mean_of_those_that_saved(
    rank_pools: RankPools, tmp_path: Path, setting: TrainingSetting, world_size: int
):
    batches = draw(7)
    saved: list[PartialRun] = rank_pools.of(2).run(train_up_to, tmp_path, setting, batches, 5)
    one, other = (run.dense | run.dense_state for run in saved)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    checkpoint = read_whole(tmp_path / "checkpoints/step-00000005")
    found: list[PartialRun] = rank_pools.of(world_size).run(train_up_to, tmp_path, setting, batches, 5, False)
    for run in found:
        for name, weights in run.dense.items():
            assert torch.equal(weights, checkpoint[f"dense.{name}"]), name
        for name, state in run.dense_state.items():
            mean = torch.stack([of_rank.dense_state[name] for of_rank in saved]).mean(dim=0)
            torch.testing.assert_close(state, mean, rtol=1e-6, atol=0)
    further: list[PartialRun] = rank_pools.of(world_size).run(train_up_to, tmp_path, setting, batches, 7)
    assert len(further[0].losses) == 2


def count_sent_bytes(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]) -> dict[str, int]:
    parts = setting.build_parts(ranks)
    ranks.exchange_clock.is_running = True
    train_parts(ranks, setting, parts, batches)
    ranks.exchange_clock.is_running = False
    by_kind = {str(kind): counted.sent_bytes for kind, counted in ranks.exchange_clock.by_kind.items()}
    ranks.exchange_clock.by_kind.clear()
    return by_kind


@pytest.mark.parametrize(("setting", "num_sent"), [(LOCAL, 2), (ELASTIC, 3), (RING, 8)])
def test_the_bytes_of_dense_weights_are_counted_in_the_place_of_gradients(
    rank_pools: RankPools, setting: TrainingSetting, num_sent: int
):
    size = count_dense_size(setting.model, setting.num_dense, [setting.model.embedding_dim] * len(setting.table_rows))
    for by_kind in rank_pools.of(2).run(count_sent_bytes, setting, draw(8)):
        assert by_kind["dense weights"] == num_sent * 4 * size.num_parameters
        assert "dense gradients" not in by_kind


def test_neighbours_are_mutual_and_reach_every_rank():
    for num_ranks in (2, 3, 4, 7, 8, 16):
        for graph, largest in (("ring", 2), ("exponential", 2 * num_ranks.bit_length())):
            neighbours = [list_neighbours(graph, rank, num_ranks) for rank in range(num_ranks)]
            assert all(rank in neighbours[other] for rank in range(num_ranks) for other in neighbours[rank])
            assert {len(of_rank) for of_rank in neighbours} == {len(neighbours[0])}
            assert len(neighbours[0]) <= largest
            assert (1 % num_ranks) in neighbours[0]
    assert list_neighbours("exponential", 0, 16) == [1, 2, 4, 8, 12, 14, 15]
    assert list_neighbours("exponential", 0, 7) == [1, 2, 5, 6]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"moments": {}}, "moments"),
        ({"variance_reduction": {}}, "variance_reduction"),
        ({"preconditioner": {}}, "preconditioner"),
        ({"averaging": {}}, "averaging"),
        ({"dense_optimizer": {"name": "schedule_free"}}, "dense_optimizer.name"),
        ({"dense_optimizer": {"name": "soap"}}, "dense_optimizer.name"),
        ({"dense_averaging": {"method": "dmsgd"}}, "dense_optimizer.name"),
        (
            {
                "dense_averaging": {"method": "decentlam"},
                "dense_optimizer": {"name": "momentum", "max_gradient_norm": 1.0},
            },
            "dense_optimizer.max_gradient_norm",
        ),
        ({"dense_averaging": {"method": "dmsgd", "every": 2}}, "dense_averaging.every"),
        ({"dense_averaging": {"method": "local_sgd", "rho": 2.0}}, "dense_averaging.rho"),
        ({"dense_averaging": {"method": "easgd", "graph": "ring"}}, "dense_averaging.graph"),
    ],
)
def test_what_needs_the_summed_gradient_or_another_method_is_refused(fields: dict[str, Any], fault: str):
    document = {"data": {"format": "synthetic"}, "dense_averaging": {}}
    assert parse_job(document).moments is None
    with pytest.raises(ConfigError) as raised:
        parse_job(document | fields)
    assert [error.field for error in raised.value.errors] == [fault]
