"""Attempts as launchers know them."""

from pathlib import Path

from dlrm.record import RunDirectory
from service.jobs.models import Attempt, Job
from service.launchers.protocol import Capacity, Demand, Launch, LaunchName


def make_launch(job: Job, attempt: Attempt) -> Launch:
    """Make what a launcher needs to start an attempt, and to find it again."""
    return Launch(
        LaunchName(job.id, attempt.number),
        RunDirectory(Path(job.run_directory)),
        Demand(Capacity(job.num_cores, job.memory_bytes, job.num_gpus), job.num_nodes),
        attempt.node,
        tuple((attempt.devices or {}).get("gpus", [])),
    )
