"""Rows of tables that pass to another id: they begin anew at their window, under any plan, and runs resume."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import dlrm
from dlrm.checkpoint.progress import RunProgress
from dlrm.config import AveragingConfig, DataConfig
from dlrm.data.errors import DataError
from dlrm.data.open import open_data
from dlrm.data.packed.open import open_packed
from dlrm.data.prepare.prepare import prepare
from dlrm.data.raw.data_file import DataFile
from dlrm.record import Outcome, RunDirectory
from dlrm.train.batch import to_device
from dlrm.train.row_reuse import make_row_reuse
from sharding.comm.process_groups import Ranks
from sharding.embedding.initial_weights import draw_rows
from tests.distributed.reference import GlobalBatch, ReferenceModel, draw_batches
from tests.distributed.training import TrainingSetting, are_close, assemble_tables, copy_shards, draw_initial_tables
from tests.dlrm.data.test_dynamic_ids import WINDOW, make_config, write_log
from tests.dlrm.train.test_run import list_figures, read_curve, resolve_job, run_attempt
from tests.rank_pool.pool import RankPools

SETTING = TrainingSetting(256, 64, "rowwise_adagrad", dense_rate=0.1, table_rate=0.05, initial_accumulator=0.01)
REUSED = {4: {0: [0, 1, 2, 5], 2: [3]}, 7: {0: [1, 4], 1: [0]}}
"""Rows by step and table that belong to another id from this step on."""


def train(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]) -> Any:
    """Return losses, shards after all steps, and the shards of the average just after the last reuse."""
    parts, losses, averages = setting.build_parts(ranks), list[float](), None
    for index, batch in enumerate(batches):
        if index in REUSED:
            rows = {table: torch.tensor(of_table) for table, of_table in REUSED[index].items()}
            parts.tables.reset_rows(rows)
            if parts.average is not None:
                parts.average.restart_rows(rows)
                with parts.average.swap_in():
                    averages = copy_shards(parts.tables)
        share = to_device(replace(setting.cut_share(batch, ranks), index=index), ranks.device)
        losses.append(parts.step(share, setting.rates_at(index)).loss)
        if parts.average is not None:
            parts.average.update(256 * (index + 1))
    return losses, copy_shards(parts.tables), averages


@pytest.mark.parametrize(
    ("plan", "optimizer"),
    [
        ("table_wise", "rowwise_adagrad"),
        ("row_wise", "rowwise_adagrad"),
        ("data_parallel", "rowwise_adagrad"),
        ("column_wise", "sgd"),
    ],
)
@pytest.mark.parametrize("world_size", [1, 2])
def test_reused_rows_begin_anew_with_their_optimizer_state(
    rank_pools: RankPools, world_size: int, plan: str, optimizer: str
) -> None:
    bound = {name: 1 / math.sqrt(rows) for name, rows in SETTING.table_rows}
    initial_sum = SETTING.initial_accumulator if optimizer == "rowwise_adagrad" else 0.0
    setting = replace(SETTING, plan=plan, table_optimizer=optimizer, initial_accumulator=initial_sum)
    batches, initial = draw_batches(10, 256, [rows for _, rows in SETTING.table_rows]), draw_initial_tables(setting)
    reference = ReferenceModel(initial, optimizer, setting.seed, initial_sum=initial_sum)
    losses: list[float] = []
    for index, batch in enumerate(batches):
        for table, rows in REUSED.get(index, {}).items():
            name = setting.table_rows[table][0]
            with torch.no_grad():
                numbers = torch.tensor(rows)
                drawn = draw_rows(name, setting.seed, numbers, setting.model.embedding_dim, bound[name])
                reference.tables[name][rows] = drawn.double()
                reference.reset_sums(name, rows, initial_sum)
        losses.append(reference.step(batch, setting.dense_rate, setting.table_rate))
    by_rank = rank_pools.of(world_size).run(train, setting, batches)
    for found, *_ in by_rank:
        torch.testing.assert_close(torch.tensor(found), torch.tensor(losses), rtol=1e-5, atol=0)
    for name, table in assemble_tables([shards for _, shards, _ in by_rank], setting).items():
        assert are_close(table, reference.tables[name], 1e-4), name


def test_the_average_of_a_reused_row_begins_anew(rank_pools: RankPools) -> None:
    setting = replace(SETTING, averaging=AveragingConfig(half_life_fraction=1.0))
    batches = draw_batches(10, 256, [rows for _, rows in SETTING.table_rows])
    by_rank = rank_pools.of(2).run(train, setting, batches)
    averages = assemble_tables([shards for *_, shards in by_rank], setting)
    for table, rows in REUSED[7].items():
        name = setting.table_rows[table][0]
        bound = 1 / math.sqrt(setting.table_rows[table][1])
        drawn = draw_rows(name, setting.seed, torch.tensor(rows), setting.model.embedding_dim, bound)
        assert torch.equal(averages[name][rows], drawn)


def test_new_weights_are_uniform_and_a_function_of_their_row() -> None:
    rows = torch.arange(0, 40_000, 2)
    drawn = draw_rows("a", 3, rows, 8, 0.5)
    assert torch.equal(draw_rows("a", 3, rows[100:103], 8, 0.5), drawn[100:103])
    assert not torch.equal(draw_rows("a", 4, rows[:9], 8, 0.5), drawn[:9])
    assert not torch.equal(draw_rows("b", 3, rows[:9], 8, 0.5), drawn[:9])
    # 160,000 numbers: standard errors of the mean and of the variance of U(-1/2, 1/2) are 0.0007 and 0.0002.
    assert drawn.abs().max() <= 0.5
    assert abs(drawn.mean().item()) < 0.003
    assert drawn.var().item() == pytest.approx(1 / 12, abs=0.001)
    neighbours = torch.stack([drawn[:-1].flatten(), drawn[1:].flatten()])
    assert abs(torch.corrcoef(neighbours)[0, 1].item()) < 0.01


def test_each_reuse_is_due_before_the_first_batch_of_its_window_after_any_resume() -> None:
    reused = {1: np.array([[0, 9], [1, 3], [1, 7], [2, 3], [4, 5]])}
    dataset: Any = SimpleNamespace(window_rows=100, reused=reused)
    for starts in ([0, 40, 80, 120, 200, 280, 380, 430], [0, 100, 200, 300, 400]):
        for first in range(len(starts)):
            calls: list[tuple[int, list[int]]] = []
            progress = RunProgress(num_steps=10)
            tables = SimpleNamespace(reset_rows=lambda rows: calls.append((progress.num_samples, rows)))  # noqa: B023
            reset = make_row_reuse(SimpleNamespace(tables=tables, average=None), progress, dataset)  # pyright: ignore
            assert reset is not None
            for start, end in zip(starts[first:], [*starts[first + 1 :], 500], strict=True):
                progress.num_samples = start
                reset(end - start)
            found = {start: rows[1].tolist() for start, rows in calls if rows}
            expected: dict[int, set[int]] = {}
            for window, row in reused[1].tolist():
                # The batch that has the first row of the window, which is the first row of a log too.
                due = max(start for start in starts if start <= window * 100)
                if due >= starts[first]:
                    expected.setdefault(due, set()).add(row)
            assert found == {start: sorted(rows) for start, rows in expected.items()}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed")
    write_log(path / "log.csv", 12_000)
    config: DataConfig = make_config(path / "log.csv", {"admit_after": 2, "max_rows": 80})
    prepare(config, [DataFile.from_path(path / "log.csv")], [], path / "rows", num_threads=1, on_event=lambda *_: None)
    return path / "rows"


def make_job(packed: Path, world_size: int) -> Any:
    data = {"format": "packed", "train": [str(packed)], "order": "time", "window_rows": WINDOW}
    return resolve_job(
        data=data,
        batch={"global_size": 300},
        run={"yardsticks": "none", "keep_scores": True},
        resources={"workers_per_node": world_size},
    )


@pytest.mark.parametrize(
    ("order", "field"),
    [({}, "data.order"), ({"order": "time", "window_rows": 2 * WINDOW}, "data.window_rows")],
)
def test_rows_whose_ids_come_and_go_are_read_in_no_other_windows(packed: Path, order: Any, field: str) -> None:
    config = DataConfig.model_validate({"format": "packed", "train": [str(packed)], **order})
    with pytest.raises(DataError) as caught:
        open_data(config, None, None)
    assert caught.value.field == field
    assert caught.value.valid == f'data.order = "time" and data.window_rows = {WINDOW}'


def test_a_run_stopped_in_a_window_goes_on_with_other_ranks_as_if_it_had_not_been(
    rank_pools: RankPools, packed: Path, tmp_path: Path
) -> None:
    straight: Outcome = rank_pools.of(1).run(run_attempt, tmp_path / "straight", 1, make_job(packed, 1), None)[0]
    assert straight.state == "succeeded", straight.message
    first: Outcome = rank_pools.of(1).run(run_attempt, tmp_path / "other", 1, make_job(packed, 1), 20)[0]
    assert first.state == "stopped"
    second: Outcome = rank_pools.of(2).run(run_attempt, tmp_path / "other", 2, make_job(packed, 2), None)[0]
    assert second.state == "succeeded", second.message
    expected, found = (read_curve(tmp_path / name, number) for name, number in (("straight", 1), ("other", 2)))
    losses = [[step.loss for step in curve.steps] for curve in (expected, found)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert len(list_figures(expected)[0]) == 36
    runs = [RunDirectory(tmp_path / name) for name in ("straight", "other")]
    vocabularies = [dlrm.load_model(run.model).encoders.vocabularies for run in runs]
    assert [v.compute_checksum() for v in vocabularies[0]] == [v.compute_checksum() for v in vocabularies[1]]
    assert open_packed(packed).reused[0].size > 0


def test_a_run_without_the_resets_learns_something_else_from_the_first_one_on(
    rank_pools: RankPools, packed: Path, tmp_path: Path
) -> None:
    """The same rows, in a directory that says that none of them change hands."""
    shutil.copytree(packed, tmp_path / "rows")
    first = min(int(reused[0, 0]) for reused in open_packed(packed).reused.values())
    for feature in range(2):
        (tmp_path / "rows" / "train" / f"reused-{feature}.bin").write_bytes(b"")
    losses: list[list[float]] = []
    for name, rows in (("with", packed), ("without", tmp_path / "rows")):
        outcome: Outcome = rank_pools.of(1).run(run_attempt, tmp_path / name, 1, make_job(rows, 1), None)[0]
        assert outcome.state == "succeeded", outcome.message
        losses.append([step.loss for step in read_curve(tmp_path / name, 1).steps])
    num_same = next(number for number, pair in enumerate(zip(*losses, strict=True)) if pair[0] != pair[1])
    assert num_same == first * WINDOW // 300
