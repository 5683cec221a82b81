"""The document of an attempt whose number of machines is a range, once it is known how many are there."""

from dlrm.config import ConfigError, ResolvedJob, resolve_for_nodes
from dlrm.record import RunDirectory, write_atomically


def list_allowed_numbers(resolved: ResolvedJob) -> list[int]:
    """List the numbers of machines that an attempt can have, ascending: those with which the document is valid.

    Their ranks divide every size of the batch, for example, unless it is yet to be decided.
    """
    numbers = resolved.job.resources.node_range
    return list(numbers) if len(numbers) == 1 else [number for number in numbers if _is_allowed(resolved, number)]


def _is_allowed(resolved: ResolvedJob, num_nodes: int) -> bool:
    try:
        resolve_for_nodes(resolved, num_nodes)
    except ConfigError:
        return False
    return True


def write_spec_for_nodes(directory: RunDirectory, number: int, resolved: ResolvedJob, num_nodes: int) -> None:
    """Write the document for `num_nodes` machines to attempt `number`, where that changes it.

    Raises OSError and ConfigError.
    """
    if num_nodes != resolved.job.resources.num_nodes:
        changed = resolve_for_nodes(resolved, num_nodes)
        write_atomically(directory.attempt(number).spec, changed.model_dump_json(indent=1))
