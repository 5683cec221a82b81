"""Attempts as launchers know them."""

import json
from pathlib import Path

from dlrm.config import KubernetesConfig
from dlrm.record import RunDirectory
from service.launchers.protocol import Launch, LaunchName
from service.store.demand import get_full_demand
from service.store.models import Attempt, Job


def make_launch(job: Job, attempt: Attempt) -> Launch:
    """Make what a launcher needs to start an attempt, and to find it again."""
    return Launch(
        LaunchName(job.id, attempt.number),
        RunDirectory(Path(job.run_directory)),
        get_full_demand(job),
        job.launcher,
        attempt.node,
        tuple((attempt.devices or {}).get("gpus", [])),
        read_placement(job),
        job.deadline_at,
        job.priority,
    )


def read_placement(job: Job) -> KubernetesConfig:
    """Read the placement on a cluster that a job asks for."""
    return KubernetesConfig.model_validate_json(json.dumps(job.placement or {}))
