"""Estimates how long a run trains. Imports no torch."""

from dlrm.config import BatchStage, ResolvedJob
from dlrm.planning.machine_resources import MachineResources
from dlrm.planning.request import make_plan_request
from dlrm.planning.sizes import Sizes
from sharding.planner import Plan
from sharding.planner.report import estimate_step_seconds


def estimate_training_seconds(
    resolved: ResolvedJob, sizes: Sizes, here: MachineResources, plan: Plan, stages: list[BatchStage]
) -> float | None:
    """Estimate the seconds of all steps of a run; None if the speed of the dense part is not known.

    A step takes as long as one of a batch of its rows: where an epoch is shorter than the batch, that are all of it.
    plan: where the tables are, for all batch sizes.
    """
    seconds = 0.0
    for stage in stages:
        num_full_steps, num_last_rows = divmod(stage.end_row - stage.start_row, stage.full_rows)
        for num_rows, num_steps in ((stage.full_rows, num_full_steps), (num_last_rows, 1)):
            if not num_rows or not num_steps:
                continue
            resized = _resize(resolved, num_rows, stage.moments_every)
            request = make_plan_request(resized, sizes.tables, sizes.num_dense, here, sizes.sequences)
            if request.topology.flops is None:
                return None
            seconds += num_steps * estimate_step_seconds(request, plan)
    return seconds


def _resize(resolved: ResolvedJob, num_rows: int, moments_every: int) -> ResolvedJob:
    """Return the job with a batch of so many rows, as many on each rank, and what depends on it."""
    world_size = resolved.job.resources.world_size
    global_size = -(-num_rows // world_size) * world_size
    batch = resolved.job.batch.model_copy(update={"global_size": global_size})
    job = resolved.job.model_copy(update={"batch": batch})
    return resolved.model_copy(
        update={
            "job": job,
            "chunk_size": min(resolved.chunk_size, global_size // world_size),
            "moments_every": moments_every,
        }
    )
