"""Stages of a batch that grows, as a job's page and `dlrm show` tell them."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from dlrm.config import BATCH_FIELD, BatchSpec, make_auto_schedule


class BatchStageView(BaseModel):
    """Consecutive batches of one size."""

    global_size: int
    """Samples of a full batch."""
    until_fraction: float | None
    """Share of the run's samples at which it ends; null where that is its end, or depends on the noise scale."""
    is_current: bool
    """Whether the last step that was reported is of it."""


def list_batch_stages(
    document: Mapping[str, Any], derived: Sequence[Mapping[str, Any]], global_size: int | None
) -> list[BatchStageView]:
    """List the stages of a job, those to come too where they are known; none of a batch of one size.

    document: job document. derived: the job's derived numbers. global_size: batch of the last step; None where no step
    is reported.
    """
    batch = document["batch"]
    if batch.get("schedule") == "auto":
        batch = _fill_schedule(document, {number["name"]: number["value"] for number in derived})
    if not batch.get("schedule") and not batch.get("growth"):
        return []
    spec = BatchSpec.model_validate(batch)
    if spec.growth is None:
        ends: list[float | None] = [*(stage.until_fraction for stage in spec.get_schedule()), None]
        sizes = [size for _, size in spec.list_sizes()]
    else:
        sizes = _list_doubled_sizes(spec.growth.start_size, spec.global_size, global_size)
        ends = [None] * len(sizes)
    return [
        BatchStageView(global_size=size, until_fraction=end, is_current=size == global_size)
        for size, end in zip(sizes, ends, strict=True)
    ]


def _fill_schedule(document: Mapping[str, Any], numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of the batch with what was decided of it; without a schedule while its size is not known."""
    batch = document["batch"]
    size = numbers.get(BATCH_FIELD, batch["global_size"])
    schedule = [] if size == "auto" else make_auto_schedule(document, size)
    return {**batch, "global_size": size, "schedule": schedule}


def _list_doubled_sizes(start: int, most: int | str, present: int | None) -> list[int]:
    """List the sizes of a batch that doubles, from its start to the present one."""
    assert isinstance(most, int), "a batch that grows has a last size"
    sizes = [start]
    while present is not None and sizes[-1] < min(present, most):
        sizes.append(min(2 * sizes[-1], most))
    return sizes
