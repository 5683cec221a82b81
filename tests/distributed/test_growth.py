"""Runs whose batch grows, against a float64 reference and against themselves where they stop and go on."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.config import JobConfig, ResolvedJob, list_differences, resolve
from dlrm.data.open import open_data
from dlrm.data.order import SampleOrder
from dlrm.data.rows import Rows
from dlrm.model import set_output_bias
from dlrm.optimizers import StepRates
from dlrm.record import EndReason, Outcome, RunDirectory
from dlrm.train.batch import to_device
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, ReferenceModel, draw_batches
from tests.distributed.training import (
    TrainedModel,
    TrainingSetting,
    assemble_tables,
    copy_shards,
    draw_initial_tables,
)
from tests.dlrm.train.test_run import DOCUMENT, list_events, list_figures, read_curve, run_attempt
from tests.rank_pool.pool import RankPools

SIZES = (128, 256, 512)
REDUCED: dict[str, Any] = {"variance_reduction": {}}
SCHEDULE = [{"until_fraction": 0.25, "global_size": 128}, {"until_fraction": 0.6, "global_size": 256}]


def resolve_growing(**changes: Any) -> ResolvedJob:
    """Resolve a job whose batch grows, with means that forget by samples."""
    document = {
        **DOCUMENT,
        "batch": {"global_size": 512, "schedule": SCHEDULE},
        "dense_optimizer": {**DOCUMENT["dense_optimizer"], "memory": "samples"},
    }
    return resolve(JobConfig.model_validate({**document, **changes}))


def train_in_sizes(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]) -> TrainedModel:
    """Train on batches of several sizes, each by the step for its own size."""
    parts = setting.build_parts(ranks)
    losses: list[float] = []
    for index, batch in enumerate(batches):
        share = to_device(replace(setting.cut_share(batch, ranks), index=index), ranks.device)
        step = parts.step.resize(len(batch.labels), moments_every=1)
        losses.append(step(share, StepRates(dense=setting.dense_rate, table=setting.table_rate)).loss)
    dense = {name: tensor.detach().clone() for name, tensor in parts.model.state_dict().items()}
    return TrainedModel(losses, [], dense, copy_shards(parts.tables))


@pytest.mark.parametrize(
    ("table_optimizer", "initial", "global_size"),
    [
        ("sgd", 0.0, 512),
        ("rowwise_adagrad", 0.0, 600),
        ("rowwise_adagrad", 0.1, 512),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("sgd", 0.0, 600), ("rowwise_adagrad", 0.0, 512), ("rowwise_adagrad", 0.1, 600)]
        ),
    ],
)
@pytest.mark.parametrize("world_size", [2, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 4))])
def test_steps_of_growing_batches_follow_the_float64_reference(
    rank_pools: RankPools, world_size: int, table_optimizer: str, initial: float, global_size: int
):
    """The scale of table gradients is below the largest batch, 600, or equal to it."""
    setting = TrainingSetting(
        global_size, 100, table_optimizer, dense_rate=0.05, table_rate=0.01, initial_accumulator=initial
    )
    rows = [rows for _, rows in setting.table_rows]
    batches = [batch for size in (64, 128, global_size) for batch in draw_batches(3, size, rows, seed=size)]
    batches += draw_batches(1, global_size, rows, seed=5, num_empty_in_last=300)
    by_rank: list[TrainedModel] = rank_pools.of(world_size).run(train_in_sizes, setting, batches)
    reference = ReferenceModel(
        draw_initial_tables(setting), setting.table_optimizer, setting.seed, setting.model, initial_sum=initial
    )
    losses = [reference.step(batch, setting.dense_rate, setting.table_rate) for batch in batches]

    torch.testing.assert_close(torch.tensor(by_rank[0].losses), torch.tensor(losses), rtol=1e-5, atol=0)
    for name, table in assemble_tables([trained.shards for trained in by_rank], setting).items():
        expected = reference.tables[name].detach()
        assert (table - expected).abs().max() <= 1e-4 * expected.abs().max(), name


def make_global_batch(rows: Rows, size: int) -> GlobalBatch:
    """Make a batch of `size` rows of these, which are padded with copies of the first one."""
    num_empty = size - rows.num_rows
    whole = GlobalBatch(rows.dense, rows.ids, rows.labels)
    numbers = np.concatenate([np.arange(rows.num_rows), np.zeros(num_empty, dtype=np.int64)])
    return GlobalBatch(rows.dense[numbers], whole.select_bags(numbers), rows.labels[numbers], num_empty)


def run_reference(job: JobConfig) -> list[float]:
    """Train in float64 over the positions of the global order; the rate is linear in the present batch."""
    dataset = open_data(job.data, None, None)
    num_rows = dataset.train.num_rows
    num_run_rows = round(num_rows * job.run.epochs)
    schema = dataset.schema
    setting = TrainingSetting(
        512, 512, model=job.model, table_rows=tuple((f.name, f.num_ids) for f in schema.features), seed=job.run.seed
    )
    reference = ReferenceModel(
        draw_initial_tables(setting), "sgd", setting.seed, setting.model, num_dense=schema.num_dense
    )
    with torch.no_grad():
        set_output_bias(reference.model, dataset.train_label_rate)
    order = SampleOrder(num_rows, job.run.seed, dataset.train.row_bytes)
    losses: list[float] = []
    row = 0
    while row < num_run_rows:
        size = 128 if row < round(0.25 * num_run_rows) else 256 if row < round(0.6 * num_run_rows) else 512
        end = min(row + size, num_run_rows)
        batch = make_global_batch(dataset.train.read(order.find_rows(row, end).row_numbers), size)
        losses.append(reference.step(batch, 0.05 * size / 128, 0.5))
        row = end
    return losses


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_run_trains_on_every_row_once_at_the_present_batchs_rate(
    rank_pools: RankPools, tmp_path: Path, world_size: int
):
    flat = {"decay": "constant", "warmup_fraction": 0.0}
    job = resolve_growing(
        dense_optimizer={
            "name": "sgd",
            "learning_rate": 0.05,
            "schedule": {**flat, "scaling": "linear", "base_batch": 128},
        },
        table_optimizer={"name": "sgd", "learning_rate": 0.5, "schedule": flat},
        run={**DOCUMENT["run"], "epochs": 1.6},
        resources={"workers_per_node": world_size},
    )
    rank_pools.of(world_size).run(run_attempt, tmp_path, 1, job, None)
    steps = read_curve(tmp_path, 1).steps
    expected = run_reference(job.job)
    assert [step.loss for step in steps] == pytest.approx(expected, rel=1e-4)
    assert {step.num_steps for step in steps} == {len(expected)}
    assert sorted({(step.global_size, round(step.dense_learning_rate, 9)) for step in steps}) == [
        (128, 0.05),
        (256, 0.1),
        (512, 0.2),
    ]
    assert steps[-1].num_samples == steps[-1].num_run_samples


@pytest.fixture(scope="module")
def straight(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("growing")
    outcome: Outcome = rank_pools.of(2).run(run_attempt, path, 1, resolve_growing(**REDUCED), None)[0]
    assert outcome.state == "succeeded"
    return path


def list_borders(path: Path) -> list[int]:
    """List the steps after which the batch grows, by the events of the first attempt."""
    return [event.details["step"] for event in list_events(path) if event.name == "batch_grown"]


def test_evaluations_are_at_shares_of_the_samples(straight: Path):
    curve = read_curve(straight, 1)
    rows = {step.step: step.num_samples for step in curve.steps}
    # Shares are of the run with its last batch filled up to the first size.
    length = -(-curve.steps[-1].num_samples // 128) * 128
    expected = [min((step for step in rows if rows[step] >= share * length), default=0) for share in (0.25, 0.5, 0.75)]
    assert [evaluation.step for evaluation in curve.evaluations] == [*expected, curve.steps[-1].step]


@pytest.mark.slow
def test_a_run_stopped_around_a_border_ends_as_if_undisturbed(rank_pools: RankPools, straight: Path, tmp_path: Path):
    expected = list_figures(read_curve(straight, 1))
    weights = (RunDirectory(straight).model / "model.safetensors").read_bytes()
    first, second = list_borders(straight)
    # Looks: one before the first step, one in each step, one in each evaluation; of these one is at the first border.
    looks = [first - 1, first, first + 1, first + 2, first + 3, second + 1, second + 2, second + 3]
    stopped_at: set[int | None] = set()
    for num_looks in looks:
        path = tmp_path / str(num_looks)
        stopped: Outcome = rank_pools.of(2).run(run_attempt, path, 1, resolve_growing(**REDUCED), num_looks)[0]
        assert stopped.reason is EndReason.STOP_REQUESTED
        stopped_at.add(stopped.step)
        rank_pools.of(2).run(run_attempt, path, 2, resolve_growing(**REDUCED), None)
        assert list_figures(read_curve(path, 2)) == expected
        assert (RunDirectory(path).model / "model.safetensors").read_bytes() == weights
    assert {first - 1, first, first + 1, second - 1, second, second + 1} <= stopped_at


def test_a_run_goes_on_at_a_border_with_another_number_of_ranks(rank_pools: RankPools, straight: Path, tmp_path: Path):
    first = list_borders(straight)[0]
    rank_pools.of(2).run(run_attempt, tmp_path, 1, resolve_growing(**REDUCED), first)
    job = resolve_growing(**REDUCED, resources={"workers_per_node": 1})
    rank_pools.of(1).run(run_attempt, tmp_path, 2, job, None)
    expected, found = read_curve(straight, 1), read_curve(tmp_path, 2)
    assert [step.num_samples for step in found.steps] == [step.num_samples for step in expected.steps]
    assert [step.loss for step in found.steps] == pytest.approx([step.loss for step in expected.steps], rel=1e-5)


@pytest.mark.slow
def test_sizes_above_an_epoch_train_as_one_size(rank_pools: RankPools, tmp_path: Path):
    """Every batch is an epoch, whatever the sizes, and without scaling its rate is the same."""
    optimizer = {"name": "adam", "learning_rate": 0.001, "schedule": {"scaling": "none"}}
    run, resources = {**DOCUMENT["run"], "epochs": 6}, {"workers_per_node": 1}
    changes = {"dense_optimizer": optimizer, "run": run, "moments": None, "resources": resources}
    schedule = [{"until_fraction": 0.5, "global_size": 16_384}]
    with_schedule = resolve_growing(**changes, batch={"global_size": 32_768, "schedule": schedule})
    without = resolve_growing(**changes, batch={"global_size": 32_768})
    for name, job in (("with", with_schedule), ("without", without)):
        rank_pools.of(1).run(run_attempt, tmp_path / name, 1, job, None)
    found, expected = (list_figures(read_curve(tmp_path / name, 1)) for name in ("with", "without"))
    assert len(found[0]) == 6
    assert found == expected


GROWTH = {"start_size": 32, "noise_factor": 0.5, "check_every_fraction": 0.05}


def resolve_by_noise(**changes: Any) -> ResolvedJob:
    document = {
        **DOCUMENT,
        "batch": {"global_size": 256, "growth": GROWTH},
        "moments": {"every": 1, "fraction": 1.0},
        "dense_optimizer": {"name": "adam", "learning_rate": 0.01, "schedule": {"scaling": "sqrt"}},
    }
    return resolve(JobConfig.model_validate({**document, **changes}))


@pytest.fixture(scope="module")
def by_noise(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("by_noise")
    outcome: Outcome = rank_pools.of(2).run(run_attempt, path, 1, resolve_by_noise(), None)[0]
    assert outcome.state == "succeeded"
    return path


def list_sizes(path: Path, num_attempts: int) -> list[tuple[int, int | None]]:
    return [(step.num_samples, step.global_size) for step in read_curve(path, num_attempts).steps]


@pytest.mark.slow
def test_a_batch_doubles_by_its_noise_scale_alike_on_any_number_of_ranks(
    rank_pools: RankPools, by_noise: Path, tmp_path: Path
):
    steps = read_curve(by_noise, 1).steps
    sizes = list_sizes(by_noise, 1)
    assert sorted({size for _, size in sizes if size}) == [32, 64, 128, 256]
    assert [size for _, size in sizes] == sorted(size for _, size in sizes if size)
    # Each batch is of its size but the run's last, and the number of steps is right at the end.
    made = [0, *(num_samples for num_samples, _ in sizes)]
    assert [end - start for start, end in pairwise(made)][:-1] == [size for _, size in sizes][:-1]
    assert (steps[-1].num_steps, steps[-1].num_samples) == (len(steps), steps[-1].num_run_samples)
    assert steps[0].num_steps == -(-steps[-1].num_samples // 32)
    # Twenty measurements are needed, and each border is the first batch that reaches a twentieth of the samples.
    share = steps[-1].num_samples / 20
    borders = list_borders(by_noise)
    assert len(borders) == 3
    assert borders[0] >= 20
    for border in borders:
        before, after = (made[border - 1], made[border])
        assert int(after / share) > int(before / share)
    alone = resolve_by_noise(resources={"workers_per_node": 1})
    rank_pools.of(1).run(run_attempt, tmp_path, 1, alone, None)
    assert list_sizes(tmp_path, 1) == sizes


@pytest.mark.slow
def test_a_batch_that_grows_by_noise_goes_on_where_it_stopped(rank_pools: RankPools, by_noise: Path, tmp_path: Path):
    expected = list_figures(read_curve(by_noise, 1))
    weights = (RunDirectory(by_noise).model / "model.safetensors").read_bytes()
    first, *_, last = list_borders(by_noise)
    stopped_at: set[int | None] = set()
    # Looks as above; steps around the first and the last border.
    for num_looks in (first - 1, first, first + 1, last + 1, last + 2, last + 4):
        path = tmp_path / str(num_looks)
        stopped: Outcome = rank_pools.of(2).run(run_attempt, path, 1, resolve_by_noise(), num_looks)[0]
        stopped_at.add(stopped.step)
        rank_pools.of(2).run(run_attempt, path, 2, resolve_by_noise(), None)
        assert list_figures(read_curve(path, 2)) == expected
        assert (RunDirectory(path).model / "model.safetensors").read_bytes() == weights
    assert {first - 1, first, first + 1} <= stopped_at
    assert stopped_at & {last - 1, last, last + 1}


def test_a_checkpoint_whose_sums_are_of_means_is_of_another_run_where_the_batch_grows():
    """Earlier versions wrote them; at a constant batch they are the same."""
    settings = RunIdentity.from_job(resolve_growing(), None).settings
    earlier = {field: value for field, value in settings.items() if field != "table_optimizer.sums_of"}
    (difference,) = list_differences(settings, earlier)
    assert difference.startswith("table_optimizer.sums_of is")
    constant = RunIdentity.from_job(resolve(JobConfig.model_validate(DOCUMENT)), None).settings
    assert "table_optimizer.sums_of" not in constant
