"""Batch of a trial by its line, which names it only if it is varied or was left open."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.experiments.trials.results import TrialResult
from dlrm.config import BATCH_FIELD


@dataclass(frozen=True)
class TrialBatch:
    """Batch of one trial."""

    size: int | None
    """Samples of a step, the most for a batch that grows. None if unknown."""
    is_growing: bool = False
    """Whether it grows in the course of the run, so that no single batch belongs to the result."""

    @property
    def constant_size(self) -> int | None:
        """Batch of the whole run; None if unknown, and if it grows."""
        return None if self.is_growing else self.size


def find_batch(result: TrialResult) -> TrialBatch:
    """Find the batch by the name in a line, or by its counts of steps and samples, and whether it grows.

    Every step of a constant batch takes the same number of rows r: B, or all rows of an epoch that has fewer; only the
    last step of the run may take fewer. So after s steps the run has consumed more than (s - 1) r samples and at most
    s r. If the counts fit neither the named batch nor fewer rows in each step, the batch grows.
    """
    named = _find_named(result)
    counts = list(_list_counts(result))
    size = named or next((round(samples / step) for step, samples in counts if step != result.num_steps), None)
    if size is None:
        return TrialBatch(None)
    is_growing = not (_fits(size, counts) or _has_short_epochs(size, counts))
    return TrialBatch(named if is_growing else size, is_growing)


def _fits(step_rows: int, counts: Sequence[tuple[int, int]]) -> bool:
    """Whether all counts of steps and samples fit steps with so many rows; the last may have fewer."""
    return all((step - 1) * step_rows < samples <= step * step_rows for step, samples in counts)


def _has_short_epochs(size: int, counts: Sequence[tuple[int, int]]) -> bool:
    """Whether all counts fit steps with one number of rows below the batch.

    The first count gives the number. It must be whole, also for a single count: any batch that grows has some mean, but
    seldom a whole one, and epochs as short as a step end with a full one, unless the last is a part.
    """
    step, samples = counts[0]
    step_rows, remainder = divmod(samples, step)
    return remainder == 0 and step_rows < size and _fits(step_rows, counts)


def _find_named(result: TrialResult) -> int | None:
    for fields in (result.compared, result.settings, result.decided):
        value = fields.get(BATCH_FIELD)
        if isinstance(value, int):
            return value
    return None


def _list_counts(result: TrialResult) -> Iterator[tuple[int, int]]:
    """List the steps and samples at the evaluations, and of the whole run."""
    for point in result.curve:
        if point.num_samples and point.step > 0:
            yield point.step, point.num_samples
    if result.num_steps and result.num_samples:
        yield result.num_steps, result.num_samples
