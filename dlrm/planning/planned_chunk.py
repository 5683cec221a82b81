"""Chooses the chunk of a job on GPUs by the memory that its plan leaves. Imports no torch."""

from collections.abc import Callable

from dlrm.config import ResolvedJob
from sharding.planner import Plan, PlanRequest
from sharding.planner.check import count_bytes_by_memory_domain

MAX_FILLED = 0.75
"""Share of a GPU's memory up to which an automatic chunk may fill it. The rest is for memory that torch's allocator
cannot use again: at a batch of 524,288 on an H100 it had taken 12.7 GB for 10.0 GB of tensors."""

LEAST_CHUNK = 2048
"""Samples of the smallest chunk that a plan decides on."""


def choose_chunk(
    resolved: ResolvedJob, request: PlanRequest, plan: Plan, make_request: Callable[[ResolvedJob], PlanRequest]
) -> PlanRequest:
    """Return the request of the same plan with the chunk decided: the largest with room.

    Tries the share of a rank, half of it, half of that and so on. Tables stay where they are: a larger chunk saves
    launches, but tables moved to make room for it would be exchanged or fetched. make_request: makes the request of a
    job with another chunk.
    """
    if not resolved.is_chunk_planned:
        return request
    chunk_size = resolved.share_size
    while chunk_size > LEAST_CHUNK:
        found = make_request(resolved.with_planned_chunk(chunk_size))
        if max(count_bytes_by_memory_domain(found, plan)) <= MAX_FILLED * request.topology.memory_bytes:
            return found
        chunk_size //= 2
    return make_request(resolved.with_planned_chunk(min(LEAST_CHUNK, resolved.share_size)))
