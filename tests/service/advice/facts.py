"""Facts about jobs for tests of the rules."""

from dataclasses import replace
from typing import Any

from dlrm.config import JobSpec, resolve
from service.advice.facts import Facts
from service.launchers.protocol import Capacity, Demand

GIB = 2**30


def make_facts(document: dict[str, Any] | None = None, **facts: Any) -> Facts:
    """Make the facts about a job on one core with 8 GiB that has succeeded. facts: fields that differ."""
    spec = JobSpec.model_validate({"data": {"train": ["day.tsv"]}, "batch": {"global_size": 4096}} | (document or {}))
    resources = spec.resources
    node = Capacity(resources.num_cores, resources.memory, resources.workers_per_node * resources.gpus_per_worker)
    base = Facts(
        state="SUCCEEDED",
        reason="completed",
        spec=spec.model_dump(mode="json"),
        decided={},
        resolved=resolve(spec).job.model_dump(mode="json"),
        demand=Demand(node, resources.num_nodes, resources.node_range[0]),
        progress={},
    )
    return replace(base, **facts)
