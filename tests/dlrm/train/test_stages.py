"""When a batch grows by its noise scale, against a walk through the rows with a noise scale that is known."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from dlrm.checkpoint.progress import RunProgress
from dlrm.config import JobConfig, list_stages
from dlrm.gradient_stats.noise import MIN_MEASUREMENTS, NoiseState, Scatter
from dlrm.train.stages import StageSequence, find_middle_stage
from sharding.comm.process_groups import Ranks
from tests.rank_pool.pool import RankPools

NUM_ROWS = 10_000
NOISES: dict[str, Callable[[int], float]] = {
    "grows with the samples": lambda row: row / 10,
    "far above from the start": lambda row: 1e9,  # noqa: ARG005
    "below the first batch": lambda row: 3.0,  # noqa: ARG005
    "goes up and down": lambda row: 500 * (1 + math.sin(row / 700)),
}


def make_job(growth: dict[str, float]) -> JobConfig:
    return JobConfig.model_validate(
        {
            "data": {"format": "synthetic"},
            "batch": {"global_size": 400, "growth": {"start_size": 30, **growth}},
            "run": {"epochs": 1.5},
            "resources": {"workers_per_node": 1},
        }
    )


def make_noise(scale: float) -> NoiseState:
    """Make the state of measurements that all have this noise scale."""
    scatter = Scatter(weight_squares=0.02, trace_squares=scale**2, norm_squares=1.0, products=scale)
    return NoiseState(num_measured=MIN_MEASUREMENTS, traces={"top": scale}, squared_norms={"top": 1.0}, spread=scatter)


def run_stages(
    ranks: Ranks, job: JobConfig, kind: str, interrupted_every: int | None
) -> tuple[list[tuple[int, int]], RunProgress]:
    """Make a run's progress, without training; return the end and the size of each batch.

    interrupted_every: number of batches after which the run goes on from its progress alone.
    """
    progress = RunProgress(num_steps=0)
    batches: list[tuple[int, int]] = []
    stages = StageSequence(job, NUM_ROWS, progress, ranks)
    while (stage := stages.begin_next()) is not None:
        assert (stage.start_step, stage.start_row) == (progress.step, progress.num_samples)
        for step in range(stage.start_step, stage.end_step):
            assert step == progress.step
            progress.step += 1
            progress.num_samples = min(progress.num_samples + stage.full_rows, stage.end_row)
            progress.noise = make_noise(NOISES[kind](progress.num_samples))
            batches.append((progress.num_samples, stage.global_size))
            if interrupted_every is not None and progress.step % interrupted_every == 0:
                progress = RunProgress.model_validate_json(progress.model_dump_json())
                stages = StageSequence(job, NUM_ROWS, progress, ranks)
                break
    assert stages.begin_next() is None
    return batches, progress


def walk(kind: str, factor: float, share: float) -> list[tuple[int, int]]:
    """List the end and the size of each batch: after every share of the 15,000 samples the noise scale is looked at."""
    batches: list[tuple[int, int]] = []
    row, size = 0, 30
    checks = [math.ceil(number * share * 15_000) for number in range(1, math.ceil(1 / share))]
    while row < 15_000:
        end = min(row + size, 15_000)
        batches.append((end, size))
        if any(row < check <= end for check in checks) and NOISES[kind](end) > factor * size:
            size = min(2 * size, 400)
        row = end
    return batches


@pytest.mark.parametrize(("factor", "share"), [(1.0, 0.05), (0.5, 0.025), (2.0, 0.1), (1.0, 0.001)])
@pytest.mark.parametrize("kind", NOISES)
def test_the_batch_doubles_at_checks_where_the_noise_scale_exceeds_it(
    rank_pools: RankPools, kind: str, factor: float, share: float
):
    job = make_job({"noise_factor": factor, "check_every_fraction": share})
    (straight, progress), other = rank_pools.of(2).run(run_stages, job, kind, None)
    assert straight == other[0] == walk(kind, factor, share)
    assert progress.step == progress.num_steps == len(straight)
    for interrupted_every in (1, 7):
        (again, _), _ = rank_pools.of(2).run(run_stages, job, kind, interrupted_every)
        assert again == straight


@pytest.mark.parametrize(
    ("batch", "middle"),
    [
        ({"global_size": 500}, 500),
        # 10 steps of 10, and 20 of 500.
        ({"global_size": 500, "schedule": [{"until_fraction": 0.01, "global_size": 10}]}, 500),
        # 100 steps of 50, and 10 of 500.
        ({"global_size": 500, "schedule": [{"until_fraction": 0.5, "global_size": 50}]}, 50),
        # 50 of 20, 50 of 60, and 60 of 100.
        (
            {
                "global_size": 100,
                "schedule": [{"until_fraction": end, "global_size": size} for end, size in ((0.1, 20), (0.4, 60))],
            },
            60,
        ),
    ],
)
def test_the_middle_stage_is_that_of_the_step_in_the_middle(batch: dict[str, Any], middle: int):
    document = {"data": {"format": "synthetic"}, "batch": batch, "resources": {"workers_per_node": 1}}
    job = JobConfig.model_validate({**document, "moments": None, "run": {"epochs": 1}})
    assert find_middle_stage(list_stages(job, NUM_ROWS)).global_size == middle


def disagree(ranks: Ranks, job: JobConfig) -> int:
    """Reach a check at which the noise scale is just above the batch on rank 0, and just below it on rank 1."""
    progress = RunProgress(num_steps=0)
    stages = StageSequence(job, NUM_ROWS, progress, ranks)
    stage = stages.begin_next()
    assert stage is not None
    progress.step, progress.num_samples = stage.end_step, stage.end_row
    progress.noise = make_noise(30 * (1 + 1e-9 if ranks.rank == 0 else 1 - 1e-9))
    grown = stages.begin_next()
    assert grown is not None
    return grown.global_size


def test_ranks_whose_noise_differs_by_rounding_grow_alike(rank_pools: RankPools):
    assert rank_pools.of(2).run(disagree, make_job({})) == [60, 60]


def test_without_enough_measurements_the_batch_stays(rank_pools: RankPools):
    def run_unmeasured(ranks: Ranks) -> int:
        progress = RunProgress(num_steps=0)
        stages = StageSequence(make_job({}), NUM_ROWS, progress, ranks)
        while (stage := stages.begin_next()) is not None:
            progress.step, progress.num_samples = stage.end_step, stage.end_row
        return len(progress.grown)

    assert rank_pools.of(1).run(run_unmeasured) == [0]
