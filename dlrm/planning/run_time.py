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
    """Estimate the seconds of all steps of a run; None where the speed of the dense part is not known.

    A step takes as long as one of the batch size of its stage, and a short last one its share of that. plan: where the
    tables are, for all batch sizes.
    """
    seconds_by_size: dict[int, float] = {}
    for size in {stage.global_size for stage in stages}:
        request = make_plan_request(_resize(resolved, size), sizes.tables, sizes.num_dense, here)
        if request.topology.flops is None:
            return None
        seconds_by_size[size] = estimate_step_seconds(request, plan)
    return sum(
        (stage.end_row - stage.start_row) / stage.global_size * seconds_by_size[stage.global_size] for stage in stages
    )


def _resize(resolved: ResolvedJob, global_size: int) -> ResolvedJob:
    """Return the job with another batch size, and what depends on it."""
    batch = resolved.job.batch.model_copy(update={"global_size": global_size})
    job = resolved.job.model_copy(update={"batch": batch})
    return resolved.model_copy(
        update={
            "job": job,
            "chunk_size": min(resolved.chunk_size, global_size // job.resources.world_size),
            "moments_every": job.get_moments_every(global_size),
        }
    )
