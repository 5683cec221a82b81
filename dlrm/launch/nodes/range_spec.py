"""The document of an attempt whose number of machines is a range, once it is known how many are there."""

from dlrm.config import ResolvedJob, resolve_for_nodes
from dlrm.record import RunDirectory, write_atomically


def list_allowed_numbers(resolved: ResolvedJob) -> list[int]:
    """List the numbers of machines that an attempt can have, ascending: their ranks divide every size of the batch."""
    job = resolved.job
    sizes = [size for _, size in job.batch.list_sizes()]
    return [
        number
        for number in job.resources.node_range
        if not any(size % (number * job.resources.workers_per_node) for size in sizes)
    ]


def write_spec_for_nodes(directory: RunDirectory, number: int, resolved: ResolvedJob, num_nodes: int) -> None:
    """Write the document for `num_nodes` machines to attempt `number`, where that changes it. Raises OSError."""
    if num_nodes != resolved.job.resources.num_nodes:
        changed = resolve_for_nodes(resolved, num_nodes)
        write_atomically(directory.attempt(number).spec, changed.model_dump_json(indent=1))
