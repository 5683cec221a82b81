"""Numbers derived from a job document alone, each with its reason."""

import math

from dlrm.config.base import Config
from dlrm.config.job import JobSpec

CACHE_SIZED_CHUNK = {0: 2048, 1: 65_536}
"""Samples of a chunk by `gpus_per_worker`; 2,048 keeps a chunk's activations in a core's cache."""


class DerivedNumber(Config):
    """One derived number, as printed and stored."""

    name: str
    value: int | float
    unit: str
    reason: str


class ResolvedJob(Config):
    """A job document with everything decided: what a launcher writes to `spec.json` and a worker reads."""

    job: JobSpec
    data_roots: list[str] | None = None
    """Directories the data must lie in, as real paths; null: the user runs the job and may read anything."""
    data_cache: str | None = None
    """Directory of prepared data that jobs share; null: the run directory keeps its own."""
    chunk_size: int
    """c, samples of a chunk on one rank."""
    gradient_scale: float
    """S, the power of two that the table gradient travels at; fixed for the run."""
    derived: list[DerivedNumber]

    @property
    def share_size(self) -> int:
        """b, samples of one step on one rank."""
        return self.job.batch.global_size // self.job.resources.world_size


def resolve(job: JobSpec, data_roots: list[str] | None = None, data_cache: str | None = None) -> ResolvedJob:
    """Decide every number that the document leaves open and does not need the data for."""
    global_size, world_size = job.batch.global_size, job.resources.world_size
    share_size = global_size // world_size
    if job.batch.chunk_size == "auto":
        chunk_size = min(share_size, CACHE_SIZED_CHUNK[job.resources.gpus_per_worker])
        chunk_reason = "the largest chunk whose activations stay in cache"
    else:
        chunk_size, chunk_reason = job.batch.chunk_size, "as asked"
    gradient_scale = float(2 ** round(math.log2(global_size)))
    derived = [
        DerivedNumber(name="world_size", value=world_size, unit="ranks", reason="nodes x workers_per_node"),
        DerivedNumber(name="share_size", value=share_size, unit="samples", reason="global_size / world_size"),
        DerivedNumber(name="chunk_size", value=chunk_size, unit="samples", reason=chunk_reason),
        DerivedNumber(
            name="gradient_scale",
            value=gradient_scale,
            unit="",
            reason="power of two nearest the batch: keeps table gradients in fp16's range and above Adagrad's eps",
        ),
    ]
    for name, optimizer in (("dense", job.dense_optimizer), ("table", job.table_optimizer)):
        schedule = optimizer.schedule
        derived.append(
            DerivedNumber(
                name=f"{name}_peak_learning_rate",
                value=optimizer.learning_rate * schedule.scale(global_size),
                unit="",
                reason=f"learning_rate at {schedule.base_batch} samples, scaling {schedule.scaling}, to {global_size}",
            )
        )
    return ResolvedJob(
        job=job,
        data_roots=data_roots,
        data_cache=data_cache,
        chunk_size=chunk_size,
        gradient_scale=gradient_scale,
        derived=derived,
    )
