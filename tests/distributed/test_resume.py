"""A run that stops and continues equals one that never stopped."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dlrm.config import (
    AugmentationConfig,
    AveragingConfig,
    DenseAveragingConfig,
    MomentsConfig,
    PreconditionerConfig,
    PruningConfig,
    VarianceReductionConfig,
)
from dlrm.config.optimizers import CowClipConfig
from tests.cases import list_cases
from tests.distributed.reference import add_task_labels, draw_batches
from tests.distributed.saving import PartialRun, train_up_to
from tests.distributed.training import TrainingSetting
from tests.dlrm.model.small_models import TASKS, make_small_model
from tests.rank_pool.pool import RankPools
from tests.sharding.read_checkpoint import read_whole

ADAGRAD = TrainingSetting(256, 64, "rowwise_adagrad", dense_rate=0.01, table_rate=0.02, dense_optimizer="adam")
SGD = TrainingSetting(256, 64, "sgd", dense_rate=0.05, table_rate=0.1)
REDUCED = TrainingSetting(256, 64, "rowwise_adagrad", exchange_dtype="fp16", precision="bf16", dense_optimizer="adam")
REDUCED_VARIANCE = TrainingSetting(
    256,
    64,
    "rowwise_adagrad",
    dense_rate=0.01,
    table_rate=0.02,
    dense_optimizer="lamb",
    moments=MomentsConfig(every=2),
    variance_reduction=VarianceReductionConfig(scale="update", control="shuffled"),
)
NADAMW = TrainingSetting(
    256,
    64,
    "rowwise_adagrad",
    dense_rate=0.01,
    table_rate=0.02,
    dense_optimizer="nadamw",
    variance_reduction=VarianceReductionConfig(),
    moments=MomentsConfig(every=2),
)
SOAP = replace(NADAMW, dense_optimizer="soap", averaging=AveragingConfig(half_life_fraction=1.0))
ADAFACTOR = replace(
    NADAMW,
    dense_optimizer="adafactor",
    dense_settings={"momentum_dtype": "bf16", "max_gradient_norm": 0.05},
    label_smoothing=0.1,
)
NESTEROV = replace(SGD, dense_optimizer="momentum", dense_settings={"nesterov": True})
NATURAL = replace(NADAMW, preconditioner=PreconditionerConfig())
SCHEDULE_FREE = replace(NADAMW, dense_optimizer="schedule_free")
AVERAGED = replace(ADAGRAD, averaging=AveragingConfig(half_life_fraction=1.0))
"""The half-life is a batch, of which the data of these tests has one."""
AUGMENTED = replace(ADAGRAD, augmentation=AugmentationConfig(copies=3))
PRUNING = PruningConfig(share=0.5, from_fraction=0.02, until_fraction=0.08)
"""Of 100 steps: elements are chosen before and after the stop."""
PRUNED = replace(AVERAGED, pruning=PRUNING)
PRUNED_SCHEDULE_FREE = replace(SCHEDULE_FREE, pruning=PRUNING)
CLIPPED = replace(ADAGRAD, cowclip=CowClipConfig(r=0.001, zeta=1e-4), count_exponent=0.5)
ACCUMULATED = replace(ADAGRAD, initial_accumulator=0.01)
TASKED = replace(NADAMW, model=make_small_model("dlrm", **TASKS))
LOCAL = replace(ADAGRAD, dense_averaging=DenseAveragingConfig(every=3))
"""At the stop and at the end, ranks differ."""
ELASTIC = replace(ADAGRAD, dense_averaging=DenseAveragingConfig(method="easgd", every=2))
DECENTRALISED = replace(
    ADAGRAD, dense_optimizer="momentum", dense_averaging=DenseAveragingConfig(method="dmsgd", graph="ring")
)

IN_FILES = replace(ACCUMULATED, resident_memory=2**24)
INT8 = replace(ADAGRAD, table_dtype="int8")
INT8_BY_NETWORK = replace(INT8, transport="network", plan="row_wise")


def draw_setting_batches(setting: TrainingSetting, number: int):
    batches = draw_batches(number, setting.global_size, [rows for _, rows in setting.table_rows])
    return batches if setting.model.num_tasks == 1 else add_task_labels(batches)


SETTINGS = {
    "adagrad and adam": ADAGRAD,
    "sgd": SGD,
    "bf16 and fp16": REDUCED,
    "lamb with variance reduction": REDUCED_VARIANCE,
    "nadamw, smoothed": NADAMW,
    "soap, smoothed and averaged": SOAP,
    "adafactor, smoothed, gradient and labels too": ADAFACTOR,
    "nesterov": NESTEROV,
    "kfac with variance reduction": NATURAL,
    "schedule_free, smoothed": SCHEDULE_FREE,
    "averaged": AVERAGED,
    "augmented": AUGMENTED,
    "pruned, averaged": PRUNED,
    "pruned, schedule_free": PRUNED_SCHEDULE_FREE,
    "clipped, by counts": CLIPPED,
    "sums that begin above zero": ACCUMULATED,
    "tasks with uncertainties and variance reduction": TASKED,
    "local_sgd": LOCAL,
    "easgd": ELASTIC,
    "dmsgd": DECENTRALISED,
    "tables in files": IN_FILES,
    "rows of int8": INT8,
    "rows of int8 by the network": INT8_BY_NETWORK,
}
WITHIN_OTHERS = {"sgd", "nadamw, smoothed", "schedule_free, smoothed", "averaged", "sums that begin above zero"}
"""Others keep all that these keep, and more: nesterov, kfac, pruned ones, tables in files."""
TELLING = [(2, name) for name in SETTINGS if name not in WITHIN_OTHERS]


@pytest.mark.parametrize(("world_size", "name"), list_cases(TELLING, (1, 2, 4), SETTINGS))
def test_ten_steps_are_bit_for_bit_five_a_stop_and_five_more(
    rank_pools: RankPools, tmp_path: Path, world_size: int, name: str
):
    setting = SETTINGS[name]
    batches, pool = draw_setting_batches(setting, 10), rank_pools.of(world_size)
    straight: list[PartialRun] = pool.run(train_up_to, tmp_path / "straight", setting, batches, 10)
    first: list[PartialRun] = pool.run(train_up_to, tmp_path / "resumed", setting, batches, 5)
    second: list[PartialRun] = pool.run(train_up_to, tmp_path / "resumed", setting, batches, 10)

    for whole, before, after in zip(straight, first, second, strict=True):
        assert (before.started_at, after.started_at) == (0, 5)
        assert before.losses + after.losses == whole.losses
        for kind in ("dense", "shards", "dense_state"):
            expected, found = getattr(whole, kind), getattr(after, kind)
            assert found.keys() == expected.keys()
            for name, tensor in expected.items():
                assert torch.equal(found[name], tensor), name
        assert any(name.startswith("/optimizer") for name in whole.shards) == (setting.table_optimizer != "sgd")
        assert torch.equal(after.random_numbers, before.random_numbers)
        if setting.dense_averaging is None:
            # Every rank computes the update of the dense parameters for itself.
            assert all(torch.equal(whole.dense[name], tensor) for name, tensor in straight[0].dense.items())
        elif whole is not straight[0]:
            own, first_rank = (run.dense | run.dense_state for run in (whole, straight[0]))
            assert any(not torch.equal(own[name], tensor) for name, tensor in first_rank.items())


@pytest.mark.parametrize(
    ("setting", "plans"),
    [
        pytest.param(ADAGRAD, ("table_wise", "row_wise"), marks=pytest.mark.slow),
        (ADAGRAD, ("row_wise", "table_wise")),
        (AVERAGED, ("row_wise", "table_wise")),
        (replace(ADAGRAD, dense_optimizer="schedule_free"), ("table_wise", "row_wise")),
        pytest.param(SGD, ("table_wise", "row_wise"), marks=pytest.mark.slow),
        (SGD, ("row_wise", "auto")),
    ],
    ids=[
        "adagrad, tables then rows",
        "adagrad, rows then tables",
        "averaged, rows then tables",
        "schedule_free, tables then rows",
        "sgd, tables then rows",
        "sgd, rows then auto",
    ],
)
@pytest.mark.parametrize(
    "ranks",
    [
        (1, 2),
        pytest.param((2, 1), marks=pytest.mark.slow),
        pytest.param((2, 4), marks=pytest.mark.slow),
        pytest.param((4, 2), marks=pytest.mark.slow),
        pytest.param((2, 2), marks=pytest.mark.slow),
        pytest.param((1, 4), marks=pytest.mark.slow),
        pytest.param((4, 1), marks=pytest.mark.slow),
    ],
)
def test_other_ranks_and_another_plan_continue_like_the_same_ones(
    rank_pools: RankPools, tmp_path: Path, ranks: tuple[int, int], setting: TrainingSetting, plans: tuple[str, str]
):
    batches = draw_setting_batches(setting, 25)
    first, second = (TrainingSetting(**{**vars(setting), "plan": plan}) for plan in plans)
    rank_pools.of(ranks[0]).run(train_up_to, tmp_path / "same", first, batches, 5)
    shutil.copytree(tmp_path / "same", tmp_path / "other")
    same: list[PartialRun] = rank_pools.of(ranks[0]).run(train_up_to, tmp_path / "same", first, batches, 25)
    other: list[PartialRun] = rank_pools.of(ranks[1]).run(train_up_to, tmp_path / "other", second, batches, 25)

    assert (same[0].started_at, other[0].started_at) == (5, 5)
    assert len(other[0].losses) == 20
    assert other[0].losses == pytest.approx(same[0].losses, rel=1e-5)
    expected, found = (read_whole(tmp_path / name / "checkpoints/step-00000025") for name in ("same", "other"))
    for name, tensor in expected.items():
        if isinstance(tensor, torch.Tensor) and not name.startswith("random"):
            scale = tensor.abs().max().item()
            assert (found[name] - tensor).abs().max().item() <= 1e-5 * max(scale, 1e-30), name


def test_a_run_of_other_ranks_has_random_numbers_of_its_own(rank_pools: RankPools, tmp_path: Path):
    batches = draw_setting_batches(SGD, 2)
    pair = rank_pools.of(2).run(train_up_to, tmp_path, SGD, batches, 1)
    (alone,) = rank_pools.of(1).run(train_up_to, tmp_path, SGD, batches, 2)
    assert not any(torch.equal(alone.random_numbers, of_pair.random_numbers) for of_pair in pair)


@pytest.mark.parametrize("optimizer", ["adam", "soap", "schedule_free"])
def test_a_run_whose_every_step_was_dropped_continues(rank_pools: RankPools, tmp_path: Path, optimizer: str):
    setting = replace(ADAGRAD, dense_optimizer=optimizer)
    batches, pool = draw_setting_batches(setting, 3), rank_pools.of(2)
    batches[0].dense[3, 2] = torch.nan
    (straight, _) = pool.run(train_up_to, tmp_path / "straight", setting, batches, 3)
    pool.run(train_up_to, tmp_path / "resumed", setting, batches, 1)
    (resumed, _) = pool.run(train_up_to, tmp_path / "resumed", setting, batches, 3)
    assert resumed.started_at == 1
    assert resumed.losses == straight.losses[1:]


@pytest.mark.parametrize("world_size", [1, 2])
def test_tables_continue_in_files_from_memory_and_in_memory_from_files(
    rank_pools: RankPools, tmp_path: Path, world_size: int
):
    batches, pool = draw_setting_batches(ACCUMULATED, 9), rank_pools.of(world_size)
    straight: list[PartialRun] = pool.run(train_up_to, tmp_path / "straight", ACCUMULATED, batches, 9)
    for setting, up_to in ((ACCUMULATED, 3), (IN_FILES, 6)):
        pool.run(train_up_to, tmp_path / "moved", setting, batches, up_to)
    moved: list[PartialRun] = pool.run(train_up_to, tmp_path / "moved", ACCUMULATED, batches, 9)
    for whole, last in zip(straight, moved, strict=True):
        assert last.losses == whole.losses[6:]
        for name, tensor in whole.shards.items():
            assert torch.equal(last.shards[name], tensor), name
