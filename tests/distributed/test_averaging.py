"""The average of the weights: its formula in float64, under any plan; what it evaluates and leaves; and training, which
it does not change."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dlrm.data.open import open_data
from dlrm.exported_model.blend import score_source
from dlrm.exported_model.layout import CARD
from dlrm.exported_model.load import load_saved_model
from dlrm.metrics.binary import compute_binary_metrics
from dlrm.optimizers import StepRates
from dlrm.optimizers.weight_average import WeightAverage
from dlrm.record import AVERAGES_WEIGHTS, Outcome, RunDirectory
from dlrm.train.batch import to_device
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, draw_batches
from tests.distributed.training import TrainingSetting, copy_shards
from tests.dlrm.train.test_run import NUM_STEPS, list_events, list_figures, read_curve, resolve_job, run_attempt
from tests.rank_pool.pool import RankPools
from tests.sharding.read_checkpoint import read_whole

SETTING = TrainingSetting(256, 64, "rowwise_adagrad", dense_rate=0.01, table_rate=0.05, dense_optimizer="adam")
HALF_LIFE = 6000.0
"""Samples: updates are due every 750, which is every third batch."""
NUM_BATCHES = 11
AVERAGED: dict[str, Any] = {"averaging": {"half_life_fraction": 0.3}}
KINDS = {"averaged": AVERAGED, "schedule_free": {"dense_optimizer": {"name": "schedule_free", "learning_rate": 0.01}}}

Weights = dict[str, torch.Tensor]


@dataclass
class Averaged:
    """One rank's weights after each step, and what was found where the average was swapped in."""

    losses: list[float]
    weights: list[Weights]
    averages: list[Weights]
    """What the model and its tables held while the average was in their place, after each step."""
    restored: list[Weights]


def copy_all(parts: Any) -> Weights:
    shards = {f"{name}@{row},{column}": weights for name, row, column, weights in copy_shards(parts.tables)}
    return shards | {name: tensor.detach().clone() for name, tensor in parts.model.named_parameters()}


def train_averaged(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]) -> Averaged:
    parts = setting.build_parts(ranks)
    average = WeightAverage(parts.model, parts.tables, ranks, HALF_LIFE)
    result, num_samples = Averaged([], [], [], []), 0
    for index, batch in enumerate(batches):
        share = replace(setting.cut_share(batch, ranks), index=index)
        rates = StepRates(setting.dense_rate, setting.table_rate)
        result.losses.append(parts.step(to_device(share, ranks.device), rates).loss)
        num_samples += batch.num_valid
        average.update(num_samples)
        result.weights.append(copy_all(parts))
        with average.swap_in():
            result.averages.append(copy_all(parts))
        result.restored.append(copy_all(parts))
    return result


def draw_run() -> list[GlobalBatch]:
    return draw_batches(NUM_BATCHES, 256, [rows for _, rows in SETTING.table_rows], num_empty_in_last=100)


def average_in_float64(weights: list[Weights], num_samples: list[int]) -> list[Weights]:
    """Average after each step, as a weighted sum over the weights at all updates: 2^(-age / half-life) in all, spread
    over the samples that each stands for."""
    averages: list[Weights] = []
    updates: list[int] = []
    for step, after in enumerate(num_samples):
        if not updates or after - num_samples[updates[-1]] >= HALF_LIFE / 8:
            updates.append(step)
        ends = [num_samples[update] for update in updates]
        # The integral of 2^(-age / H) over the samples between the update before and this one, up to a factor.
        parts = [
            2.0 ** ((end - ends[-1]) / HALF_LIFE) - 2.0 ** ((start - ends[-1]) / HALF_LIFE)
            for start, end in zip([0, *ends], ends, strict=False)
        ]
        averages.append(
            {
                name: sum(part * weights[update][name].double() for part, update in zip(parts, updates, strict=True))
                / sum(parts)
                for name in weights[0]
            }
        )
    return averages


@pytest.mark.parametrize(
    ("plan", "transport", "world_size"),
    [
        pytest.param("table_wise", "memory", 1, marks=pytest.mark.slow),
        pytest.param("row_wise", "memory", 2, marks=pytest.mark.slow),
        ("table_wise", "memory", 4),
        pytest.param("row_wise", "network", 2, marks=pytest.mark.slow),
        ("data_parallel", "network", 2),
        ("row_wise", "torchrec", 2),
    ],
)
def test_it_is_the_weighted_mean_of_the_weights_at_its_updates(
    rank_pools: RankPools, plan: str, transport: str, world_size: int
):
    setting = replace(SETTING, plan=plan, transport=transport)
    batches = draw_run()
    num_samples = [sum(batch.num_valid for batch in batches[: step + 1]) for step in range(NUM_BATCHES)]
    for of_rank in rank_pools.of(world_size).run(train_averaged, setting, batches):
        expected = average_in_float64(of_rank.weights, num_samples)
        for found, mean, weights, restored in zip(
            of_rank.averages, expected, of_rank.weights, of_rank.restored, strict=True
        ):
            assert found.keys() == mean.keys()
            for name, tensor in mean.items():
                torch.testing.assert_close(found[name].double(), tensor, rtol=0, atol=2e-7 * tensor.abs().max().item())
                assert torch.equal(restored[name], weights[name])


def test_the_average_does_not_depend_on_ranks_or_plan(rank_pools: RankPools):
    batches = draw_run()
    (alone,) = rank_pools.of(1).run(train_averaged, replace(SETTING, plan="table_wise"), batches)
    for of_rank in rank_pools.of(2).run(train_averaged, replace(SETTING, plan="row_wise"), batches):
        for name, tensor in of_rank.averages[-1].items():
            table, _, offsets = name.partition("@")
            expected = alone.averages[-1][f"{table}@0,0" if offsets else name]
            first = int(offsets.split(",")[0]) if offsets else 0
            torch.testing.assert_close(tensor, expected[first : first + len(tensor)], rtol=0, atol=1e-5)


def test_a_step_that_is_longer_than_a_half_life_updates_it_too(rank_pools: RankPools):
    """With a half-life of one batch, the last weights count half, those before a quarter, and so on."""
    weights = [torch.tensor([float(step)]) for step in range(4)]
    parts = [0.5 ** (4 - step) for step in range(4)]
    expected = sum(part * weight for part, weight in zip(parts, weights, strict=True)) / sum(parts)
    (found,) = rank_pools.of(1).run(average_one_number, weights)
    torch.testing.assert_close(found, expected)


def average_one_number(ranks: Ranks, weights: list[torch.Tensor], restart_at: int | None = None) -> torch.Tensor:
    """Average weights after steps of 256 samples. restart_at: step before which the average begins anew."""
    model = torch.nn.ParameterDict({"w": torch.zeros(1)})
    tables = replace(SETTING, table_rows=()).build_parts(ranks).tables
    average = WeightAverage(model, tables, ranks, 256.0)
    num_samples = 0
    for step, weight in enumerate(weights):
        model["w"].data.copy_(weight)
        if step == restart_at:
            average.restart(num_samples)
        num_samples += 256
        average.update(num_samples)
    with average.swap_in():
        return model["w"].detach().clone()


def run_whole(rank_pools: RankPools, path: Path, world_size: int = 2, **changes: Any) -> Outcome:
    job = resolve_job(**{"resources": {"workers_per_node": world_size}, **changes})
    outcome = rank_pools.of(world_size).run(run_attempt, path, 1, job, None)[0]
    assert outcome.state == "succeeded", outcome.message
    return outcome


@pytest.fixture(scope="module", params=["averaged", "schedule_free"])
def kind(request: pytest.FixtureRequest) -> str:
    """A run with an average of all weights, or with an optimizer that averages the dense ones itself."""
    return request.param


@pytest.fixture(scope="module")
def averaged(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory, kind: str) -> Path:
    path = tmp_path_factory.mktemp(kind)
    run_whole(rank_pools, path, **KINDS[kind])
    return path


@pytest.mark.parametrize(
    "transport", ["auto", *(pytest.param(name, marks=pytest.mark.slow) for name in ("network", "torchrec"))]
)
def test_training_is_the_same_to_the_bit(rank_pools: RankPools, tmp_path: Path, transport: str):
    sharding = {"sharding": {"transport": transport}}
    run_whole(rank_pools, tmp_path / "plain", **sharding)
    run_whole(rank_pools, tmp_path / "averaged", **sharding, **AVERAGED)
    plain, with_average = (list_figures(read_curve(tmp_path / name, 1)) for name in ("plain", "averaged"))
    assert with_average[0] == plain[0]
    assert all(ours != theirs for ours, theirs in zip(with_average[1], plain[1], strict=True))
    expected, found = (read_whole(RunDirectory(tmp_path / run).checkpoint(NUM_STEPS)) for run in ("plain", "averaged"))
    for key, value in expected.items():
        if isinstance(value, torch.Tensor) and not key.startswith("random"):
            assert torch.equal(found[key], value), key


def test_the_model_that_is_left_is_the_average_that_was_evaluated(averaged: Path, kind: str):
    model = load_file(RunDirectory(averaged).model / "model.safetensors")
    reported = read_curve(averaged, 1).evaluations[-1]
    saved = read_whole(RunDirectory(averaged).checkpoint(reported.step))
    if kind == "averaged":
        for name, tensor in model.items():
            key = f"average.{name.removesuffix('.weight') if 'tables.' in name else name}"
            assert torch.equal(saved[key], tensor), name
        assert any(not torch.equal(saved[name], tensor) for name, tensor in model.items() if name.startswith("dense."))
    else:
        averages = [value for key, value in saved.items() if key.startswith("dense_optimizer.") and key.endswith("x")]
        dense = {name: tensor for name, tensor in model.items() if name.startswith("dense.")}
        assert len(averages) == len(dense)
        for name, tensor in dense.items():
            assert any(tensor.shape == average.shape and torch.equal(tensor, average) for average in averages), name
        card = (RunDirectory(averaged).model / CARD).read_text()
        assert "Its dense parameters are an average over the steps." in card
    dataset = open_data(resolve_job(**KINDS[kind]).job.data, [], None)
    scored = score_source(load_saved_model(RunDirectory(averaged).model).module, dataset.evaluation)
    measured = compute_binary_metrics(scored.labels, scored.logits, scored.weights)
    assert (measured.auc, measured.log_loss) == pytest.approx((reported.auc, reported.log_loss), rel=1e-6)


@pytest.mark.slow
def test_a_run_stopped_at_any_look_ends_with_the_same_average(
    rank_pools: RankPools, averaged: Path, kind: str, tmp_path: Path
):
    """The looks: before the first step, in each step, and before each batch of an evaluation."""
    job = resolve_job(**KINDS[kind])
    weights = (RunDirectory(averaged).model / "model.safetensors").read_bytes()
    for num_looks in (5, 7, 14):
        path = tmp_path / str(num_looks)
        first: Outcome = rank_pools.of(2).run(run_attempt, path, 1, job, num_looks)[0]
        assert first.state == "stopped"
        rank_pools.of(2).run(run_attempt, path, 2, job, None)
        assert list_figures(read_curve(path, 2)) == list_figures(read_curve(averaged, 1))
        assert (RunDirectory(path).model / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("kind", ["averaged"], indirect=True)
def test_the_run_says_what_is_averaged(averaged: Path):
    (event,) = (event for event in list_events(averaged) if event.name == AVERAGES_WEIGHTS)
    # 0.3 of one epoch of 7,200 rows or so.
    assert event.details["half_life_samples"] == pytest.approx(0.3 * 7200, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "optimizer_state"),
    [
        ("averaged", False),
        ("schedule_free", True),
        pytest.param("averaged", True, marks=pytest.mark.slow),
        pytest.param("schedule_free", False, marks=pytest.mark.slow),
    ],
    indirect=["kind"],
)
def test_a_warm_start_goes_on_from_the_average(
    rank_pools: RankPools, averaged: Path, kind: str, tmp_path: Path, optimizer_state: bool
):
    run = {"eval_every_fraction": 0.25, "yardsticks": "none"}
    run["warm_start"] = {"from": str(averaged), "optimizer_state": optimizer_state}
    # Rates whose squares are numbers of fp32, and whose steps are none.
    optimizer = {"name": "adam" if kind == "averaged" else kind, "learning_rate": 1e-15}
    job = resolve_job(run=run, dense_optimizer=optimizer, table_optimizer={"learning_rate": 1e-30})
    outcome = rank_pools.of(2).run(run_attempt, tmp_path, 1, job, None)[0]
    assert outcome.state == "succeeded", outcome.message
    started, source = (load_file(RunDirectory(path).model / "model.safetensors") for path in (tmp_path, averaged))
    for name, tensor in source.items():
        torch.testing.assert_close(started[name], tensor, rtol=0, atol=1e-6)
    if kind == "schedule_free":
        # The average begins anew: no step of the earlier run, at 0.01, has a weight in it.
        saved = read_whole(RunDirectory(tmp_path).checkpoint(outcome.step or 0))
        totals = [value.item() for name, value in saved.items() if name.endswith("squared_rates")]
        assert max(totals) == pytest.approx(min(totals))
        assert 0.0 < max(totals) < 1e-20
