"""Batch of a trial, by what its line tells: lines name it only where it is varied or was left open."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.cli.sweep.results import TrialResult

BATCH = "batch.global_size"


@dataclass(frozen=True)
class TrialBatch:
    """Batch of one trial."""

    size: int | None
    """Samples of a step; of a batch that grows the most that it may grow to. None where the line does not tell."""
    is_growing: bool = False
    """Whether it grows in the course of the run, so that no single batch belongs to the result."""

    @property
    def constant_size(self) -> int | None:
        """Samples of every step; None where they are not told, and where the batch grows."""
        return None if self.is_growing else self.size


def find_batch(result: TrialResult) -> TrialBatch:
    """Find the batch that a line names, or that its counts of steps and samples tell, and whether it grows.

    After s steps of a constant batch B a run has consumed more than (s - 1) B samples and at most s B: all batches but
    the last one of the run are full. A line whose counts differ from that is of a batch that grows.
    """
    named = _find_named(result)
    counts = list(_list_counts(result))
    size = named or next((round(samples / step) for step, samples in counts if step != result.num_steps), None)
    if size is None:
        return TrialBatch(None)
    is_growing = not all((step - 1) * size < samples <= step * size for step, samples in counts)
    return TrialBatch(named if is_growing else size, is_growing)


def _find_named(result: TrialResult) -> int | None:
    for fields in (result.compared, result.settings, result.decided):
        value = fields.get(BATCH)
        if isinstance(value, int):
            return value
    return None


def _list_counts(result: TrialResult) -> Iterator[tuple[int, int]]:
    """List the steps and samples of the evaluations, and those of the whole run."""
    for point in result.curve:
        if point.num_samples and point.step > 0:
            yield point.step, point.num_samples
    if result.num_steps and result.num_samples:
        yield result.num_steps, result.num_samples
