"""How long a run is said to train."""

from dataclasses import replace
from typing import Any

import pytest

from dlrm.config import JobConfig, ResolvedJob, resolve
from dlrm.planning.machine_resources import MachineResources
from dlrm.planning.request import make_checked_plan
from dlrm.planning.run_time import estimate_training_seconds
from dlrm.planning.shortages import RowCounts, list_run_stages
from dlrm.planning.sizes import Sizes
from sharding.planner import Table
from sharding.planner.machine import Speeds
from sharding.planner.report import make_plan_report

SPEEDS = Speeds(one_copy=1e10, all_copies=1.6e10, loopback=2e9, flops=1e11, flops_bf16=4e11)
HERE = MachineResources(SPEEDS, num_cores=8, memory_bytes=2**34, has_operators=True)
SIZES = Sizes([Table("a", 100_000, 64), Table("b", 100_000, 64)], num_dense=13, source="the test")


def resolve_job(*, epochs: float = 1, moments: dict[str, Any] | None = None, **batch: Any) -> ResolvedJob:
    """Resolve a job of two nodes. moments: the section; None for a run that measures none."""
    sections = {
        "data": {"format": "synthetic"},
        "batch": batch,
        "moments": moments,
        "resources": {"nodes": 2, "workers_per_node": 1},
        "run": {"epochs": epochs, "validation_fraction": 0.0},
    }
    return resolve(JobConfig.model_validate(sections))


def estimate(resolved: ResolvedJob, num_rows: int, here: MachineResources = HERE) -> float | None:
    _, plan = make_checked_plan(resolved, SIZES.tables, SIZES.num_dense, here)
    stages = list_run_stages(resolved.job, RowCounts(num_rows))
    assert stages is not None
    return estimate_training_seconds(resolved, SIZES, here, plan, stages)


def find_step_seconds(global_size: int, moments: dict[str, Any] | None = None) -> float:
    """Return the seconds of a step in the plan of a job whose batch always has that size."""
    resolved = resolve_job(moments=moments, global_size=global_size)
    return make_plan_report(*make_checked_plan(resolved, SIZES.tables, SIZES.num_dense, HERE)).step.seconds


@pytest.mark.parametrize("epochs", [1, 1.5])
def test_a_run_takes_as_long_as_its_steps_the_short_last_one_too(epochs: float) -> None:
    num_steps, num_last_rows = divmod(round(9_000 * epochs), 128)
    seconds = num_steps * find_step_seconds(128) + find_step_seconds(num_last_rows)
    assert estimate(resolve_job(epochs=epochs, global_size=128), 9_000) == pytest.approx(seconds)


@pytest.mark.parametrize(("num_rows", "global_size"), [(64, 4096), (33, 2048)])
def test_a_batch_larger_than_an_epoch_takes_the_time_of_all_rows_once_an_epoch(num_rows: int, global_size: int) -> None:
    resolved = resolve_job(epochs=100, global_size=global_size)
    # As many rows on both nodes: 34 of 33.
    assert estimate(resolved, num_rows) == pytest.approx(100 * find_step_seconds(num_rows + num_rows % 2))


def test_each_size_of_a_growing_batch_takes_the_time_of_its_own_steps() -> None:
    """Of 8,960 rows one half in 140 steps of 32, the other in 35 of 128; 32 measures moments less often."""
    schedule = [{"until_fraction": 0.5, "global_size": 32}]
    seconds = estimate(resolve_job(moments={}, global_size=128, schedule=schedule), 8_960)
    assert seconds == pytest.approx(140 * find_step_seconds(32, {}) + 35 * find_step_seconds(128, {}))
    # Sums of gradients over the network take every step as long, so that small ones take longer for their samples.
    assert seconds > 1.3 * 70 * find_step_seconds(128, {})


def test_the_time_is_unknown_where_the_speed_of_the_dense_part_is() -> None:
    assert estimate(resolve_job(global_size=128), 9_000, replace(HERE, speeds=replace(SPEEDS, flops=None))) is None
