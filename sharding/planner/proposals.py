"""What would give tables room, in the words of a job's document: the one place here that knows them.

Written as TOML has it, `resources.memory = "3.11GiB"`; what stands in parentheses explains.
"""

from collections.abc import Iterator

from sharding.planner.amounts import in_units
from sharding.planner.request import PlanRequest


def in_words(request: PlanRequest, tried: PlanRequest) -> str:
    """The settings that make `tried` of `request`."""
    return ", ".join(_settings(request, tried))


def _settings(request: PlanRequest, tried: PlanRequest) -> Iterator[str]:
    topology, other = request.topology, tried.topology
    if other.memory_bytes != topology.memory_bytes:
        is_cuda = topology.device == "cuda"
        field, what = ("sharding.topology.gpu_memory", "a GPU") if is_cuda else ("resources.memory", "a node")
        yield f'{field} = "{in_units(other.memory_bytes, topology.device)}" (of memory {what})'
    if other.num_nodes != topology.num_nodes:
        yield f"resources.nodes = {other.num_nodes} ({other.world_size} ranks)"
    if tried.optimizer != request.optimizer:
        yield f'table_optimizer.name = "{tried.optimizer}" (which keeps less)'
    if tried.plan != request.plan:
        yield f'sharding.plan = "{tried.plan}"'
    if tried.rules != request.rules:
        yield "sharding.tables = [] (no rules)"
    if tried.exchange_dtype != request.exchange_dtype:
        yield f'sharding.exchange_dtype = "{tried.exchange_dtype}"'
    if tried.global_size != request.global_size:
        yield f"batch.global_size = {tried.global_size}"
    if tried.chunk_size != request.chunk_size:
        is_alone = (tried.global_size, other) == (request.global_size, topology)
        yield f"batch.chunk_size = {tried.chunk_size} ({'or less; the result is the same' if is_alone else 'or less'})"
