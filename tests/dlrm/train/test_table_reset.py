"""Runs whose epochs begin with new tables: when they are drawn, when the model is evaluated, and how runs resume."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from dlrm.config import BatchStage, ConfigError, list_differences, make_identity, parse_job
from dlrm.record import TABLES_RESET, Outcome, RunDirectory
from dlrm.train.stages import postpone_to_epoch_ends
from sharding.embedding.initial_weights import fill_uniform
from tests.distributed.test_averaging import average_one_number
from tests.dlrm.train.test_run import list_events, list_figures, read_curve, resolve_job, run_attempt
from tests.rank_pool.pool import RankPools
from tests.sharding.read_checkpoint import read_whole

RUN: dict[str, Any] = {"epochs": 2.5, "eval_every_fraction": 0.1, "yardsticks": "none", "reset_tables_each_epoch": True}
"""7,200 rows in batches of 512: batches 1 to 15 begin in the first epoch, 16 to 29 in the second, 30 to 36 later."""
EVALUATED, NUM_STEPS = [15, 29, 36], 36
AVERAGED = {"averaging": {"half_life_fraction": 0.02}}


def run_whole(rank_pools: RankPools, path: Path, world_size: int = 2, **changes: Any) -> Outcome:
    job = resolve_job(**{"run": RUN, "resources": {"workers_per_node": world_size}, **changes})
    outcome = rank_pools.of(world_size).run(run_attempt, path, 1, job, None)[0]
    assert outcome.state == "succeeded", outcome.message
    return outcome


def read_resets(path: Path, attempt: int = 1) -> list[tuple[int, int]]:
    """Read after which step which epoch began with new tables, as rank 0 reported it."""
    events = [event.details for event in list_events(path, attempt) if event.name == TABLES_RESET]
    return [(details["step"], details["epoch"]) for details in events]


@pytest.fixture(scope="module")
def straight(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("straight")
    run_whole(rank_pools, path)
    return path


def test_tables_are_drawn_before_the_first_batch_of_an_epoch_and_evaluated_at_its_end(
    rank_pools: RankPools, straight: Path, tmp_path: Path
):
    assert read_resets(straight) == [(15, 2), (29, 3)]
    curve = read_curve(straight, 1)
    assert [report.step for report in curve.evaluations] == EVALUATED
    assert curve.steps[-1].step == NUM_STEPS
    run_whole(rank_pools, tmp_path, run={**RUN, "reset_tables_each_epoch": False})
    steps, plain = list_figures(curve)[0], list_figures(read_curve(tmp_path, 1))[0]
    assert steps[:15] == plain[:15]
    assert all(step[2] != other[2] for step, other in zip(steps[15:], plain[15:], strict=True))


@pytest.mark.parametrize("changes", [{}, pytest.param(AVERAGED, marks=pytest.mark.slow)], ids=["weights", "average"])
@pytest.mark.slow
def test_a_run_stopped_at_any_look_ends_as_if_it_had_not_been(
    rank_pools: RankPools, straight: Path, tmp_path: Path, changes: dict[str, Any]
):
    """Looks 15 and 16 end with the last batch that begins in the first epoch, and with its evaluation."""
    if changes:
        straight = tmp_path / "straight"
        run_whole(rank_pools, straight, **changes)
    job = resolve_job(run=RUN, resources={"workers_per_node": 2}, **changes)
    for num_looks in (15, 16, 20):
        path = tmp_path / str(num_looks)
        first: Outcome = rank_pools.of(2).run(run_attempt, path, 1, job, num_looks)[0]
        assert first.state == "stopped"
        rank_pools.of(2).run(run_attempt, path, 2, job, None)
        assert list_figures(read_curve(path, 2)) == list_figures(read_curve(straight, 1))
        assert [*read_resets(path), *read_resets(path, 2)] == [(15, 2), (29, 3)]
        expected, found = ((RunDirectory(run).model / "model.safetensors").read_bytes() for run in (straight, path))
        assert found == expected


@pytest.mark.slow
def test_all_transports_and_plans_follow_the_same_course(rank_pools: RankPools, straight: Path, tmp_path: Path):
    expected = [report.loss for report in read_curve(straight, 1).steps]
    layouts = [
        (1, "memory", "table_wise"),
        (2, "network", "row_wise"),
        (2, "torchrec", "table_wise"),
    ]
    for number, (world_size, transport, plan) in enumerate(layouts):
        path = tmp_path / str(number)
        run_whole(rank_pools, path, world_size, sharding={"transport": transport, "plan": plan})
        found = [report.loss for report in read_curve(path, 1).steps]
        assert found == pytest.approx(expected, rel=1e-4), (transport, plan)


def test_tables_that_no_step_moves_are_the_draw_of_the_last_epoch(rank_pools: RankPools, tmp_path: Path):
    run_whole(rank_pools, tmp_path, table_optimizer={"learning_rate": 1e-30}, run={**RUN, "keep_model": "last"})
    saved = read_whole(RunDirectory(tmp_path).checkpoint(NUM_STEPS))
    prefix = "tables.weights."
    names = [key.removeprefix(prefix) for key in saved if key.startswith(prefix)]
    assert names
    for name in names:
        drawn = torch.empty_like(saved[prefix + name])
        rows, columns = drawn.shape
        fill_uniform(
            drawn,
            table_name=name,
            seed=0,
            row_offset=0,
            column_offset=0,
            num_columns=columns,
            bound=1 / math.sqrt(rows),
            draw=2,
        )
        assert torch.equal(saved[prefix + name], drawn)


def test_an_average_that_begins_anew_forgets_the_weights_before(rank_pools: RankPools):
    weights = [torch.tensor([float(step)]) for step in range(6)]
    (whole,) = rank_pools.of(1).run(average_one_number, weights, 3)
    (alone,) = rank_pools.of(1).run(average_one_number, weights[3:])
    assert torch.equal(whole, alone)


@pytest.mark.parametrize(
    ("epoch_rows", "sizes"),
    [
        (7200, [512] * 39),
        (500, [100] * 10),
        (300, [300] * 7),
        (10, [7] * 5),
        (100, [10] * 7 + [30] * 6),
        (100, [25] * 4 + [50] * 2 + [70] * 3),
    ],
)
def test_evaluations_wait_for_the_last_batch_that_begins_in_their_epoch(epoch_rows: int, sizes: list[int]):
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    epochs = [start // epoch_rows for start in starts]
    stages = [
        BatchStage(size, size, 1, first, starts[first], starts[first] + sizes.count(size) * size)
        for size in dict.fromkeys(sizes)
        for first in [sizes.index(size)]
    ]
    for step in range(1, len(sizes) + 1):
        last = max(other + 1 for other, epoch in enumerate(epochs) if epoch == epochs[step - 1])
        assert postpone_to_epoch_ends([step], stages, epoch_rows) == {last}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"resources": {"gpus_per_worker": 1}}, "these ranks have GPUs"),
        ({"run": {"reset_tables_each_epoch": True, "warm_start": {"from": "/a/model"}}}, "run.warm_start"),
    ],
)
def test_what_cannot_be_drawn_anew_is_refused_by_the_name_of_the_field(document: dict[str, Any], why: str):
    with pytest.raises(ConfigError) as caught:
        parse_job({"data": {"format": "synthetic"}, "run": {"reset_tables_each_epoch": True}, **document})
    (error,) = caught.value.errors
    assert error.field == "run.reset_tables_each_epoch"
    assert why in str(error)


def test_a_run_with_new_tables_is_another_run():
    now = make_identity(resolve_job(run=RUN).job)
    without = make_identity(resolve_job(run={**RUN, "reset_tables_each_epoch": False}).job)
    assert list_differences(now, without) == ["run.reset_tables_each_epoch is true, but was false"]
    earlier = {field: value for field, value in without.items() if field != "run.reset_tables_each_epoch"}
    assert list_differences(without, earlier) == []
