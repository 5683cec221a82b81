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
ROWS = RowCounts(9_000)


def resolve_job(**batch: Any) -> ResolvedJob:
    resources = {"nodes": 2, "workers_per_node": 1}
    run = {"epochs": 1, "validation_fraction": 0.0}
    sections = {"data": {"format": "synthetic"}, "batch": batch, "resources": resources, "run": run}
    return resolve(JobConfig.model_validate(sections))


def estimate(resolved: ResolvedJob, here: MachineResources = HERE) -> float | None:
    _, plan = make_checked_plan(resolved, SIZES.tables, SIZES.num_dense, here)
    stages = list_run_stages(resolved.job, ROWS)
    assert stages is not None
    return estimate_training_seconds(resolved, SIZES, here, plan, stages)


def find_step_seconds(global_size: int) -> float:
    """Return the seconds of a step in the plan of a job whose batch always has that size."""
    return make_plan_report(
        *make_checked_plan(resolve_job(global_size=global_size), SIZES.tables, SIZES.num_dense, HERE)
    ).step.seconds


def test_a_run_takes_as_long_as_its_rows_at_the_speed_of_its_batch() -> None:
    assert estimate(resolve_job(global_size=128)) == pytest.approx(9_000 / 128 * find_step_seconds(128))


def test_each_size_of_a_growing_batch_takes_the_time_of_its_own_steps() -> None:
    """Of 9,000 rows half, rounded up to 141 steps of 32 (4,512 samples), and 4,488 in steps of 128."""
    schedule = [{"until_fraction": 0.5, "global_size": 32}]
    seconds = estimate(resolve_job(global_size=128, schedule=schedule))
    assert seconds == pytest.approx(141 * find_step_seconds(32) + 4_488 / 128 * find_step_seconds(128))
    # Sums of gradients over the network take every step as long, so that small ones take longer for their samples.
    assert seconds > 1.3 * 9_000 / 128 * find_step_seconds(128)


def test_the_time_is_unknown_where_the_speed_of_the_dense_part_is() -> None:
    assert estimate(resolve_job(global_size=128), replace(HERE, speeds=replace(SPEEDS, flops=None))) is None
