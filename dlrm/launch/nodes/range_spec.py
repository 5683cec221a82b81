"""The document of an attempt whose number of machines is a range, once it is known how many are there."""

import math

from dlrm.config import ConfigError, ResolvedJob, resolve_for_nodes
from dlrm.record import RunDirectory, write_atomically

MAX_RAISE = 256
"""Samples by which a batch that is yet to be decided may be raised for a number of machines that its range does not
demand."""


def list_allowed_numbers(resolved: ResolvedJob) -> list[int]:
    """List the numbers of machines that an attempt can have, ascending: those with which the document is valid.

    Their ranks divide every size of the batch. Where the batch is yet to be decided, it will be such a size; then those
    numbers are left out that would raise it by many samples, in this attempt and all later ones.
    """
    numbers = resolved.job.resources.node_range
    return list(numbers) if len(numbers) == 1 else [number for number in numbers if _is_allowed(resolved, number)]


def _is_allowed(resolved: ResolvedJob, num_nodes: int) -> bool:
    resources = resolved.job.resources
    if resolved.asked is not None and resolved.asked.batch.global_size == "auto":
        of_ends = math.lcm(resources.least_world_size, resources.node_range[-1] * resources.workers_per_node)
        if math.lcm(of_ends, num_nodes * resources.workers_per_node) > max(of_ends, MAX_RAISE):
            return False
    try:
        resolve_for_nodes(resolved, num_nodes)
    except ConfigError:
        return False
    return True


def write_spec_for_nodes(directory: RunDirectory, number: int, resolved: ResolvedJob, num_nodes: int) -> None:
    """Write the document for `num_nodes` machines to attempt `number`, where that changes it. Raises OSError."""
    if num_nodes != resolved.job.resources.num_nodes:
        changed = resolve_for_nodes(resolved, num_nodes)
        write_atomically(directory.attempt(number).spec, changed.model_dump_json(indent=1))
