"""Stages of a batch that grows, as shown by a job's page and `dlrm show`."""

from collections.abc import Mapping
from typing import Any

from service.schemas import BatchStage
from service.store.batch import find_batch


def list_batch_stages(
    document: Mapping[str, Any], resolved: Mapping[str, Any], present: int | None
) -> list[BatchStage]:
    """List the stages of a job, those to come too where they are known; none of a batch of one size.

    document: job document. resolved: resolved document, with what a run has decided once it has. present: batch of the
    last step that was reported; None if none is.
    """
    batch = resolved["job"]["batch"]
    last = batch["global_size"]
    growth, schedule = batch.get("growth"), batch.get("schedule")
    if growth:
        sizes = _list_doubled_sizes(growth["start_size"], last, present)
        ends = [None] * len(sizes)
    elif schedule and find_batch(document, resolved) is not None:
        sizes = [*(stage["global_size"] for stage in schedule), last]
        ends = [*(stage["until_fraction"] for stage in schedule), None]
    else:
        return []
    return [
        BatchStage(global_size=size, until_fraction=end, is_current=size == present)
        for size, end in zip(sizes, ends, strict=True)
    ]


def _list_doubled_sizes(start: int, last: int, present: int | None) -> list[int]:
    """List the sizes of a batch that doubles, from its start to the present one."""
    sizes = [start]
    while present is not None and sizes[-1] < min(present, last):
        sizes.append(min(2 * sizes[-1], last))
    return sizes
