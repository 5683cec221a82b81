"""Rows and steps of a run: its validation rows, and its stages, in which the batch has one size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dlrm.config.base import Config
from dlrm.config.batch import BatchConfig
from dlrm.config.job import JobConfig


@dataclass(frozen=True)
class BatchStage:
    """Consecutive batches of one size."""

    global_size: int
    """B, samples of a full batch, with which learning rates scale."""
    full_rows: int
    """Rows of every batch but the run's last: B, or all rows of an epoch that has fewer."""
    moments_every: int
    """Number of steps from one measurement of moments to the next."""
    start_step: int
    """Number of batches of the run before the stage."""
    start_row: int
    """Position of its first row in the global order."""
    end_row: int
    """Position behind its last row: whole batches, except at the end of the run."""

    @property
    def num_steps(self) -> int:
        """Number of batches of the stage."""
        return -(-(self.end_row - self.start_row) // self.full_rows)

    @property
    def end_step(self) -> int:
        """Number of batches of the run up to the end of the stage."""
        return self.start_step + self.num_steps


class GrownBatch(Config):
    """Batch size that the noise scale has led to, from one row on."""

    start_row: int
    """Position of the first row that is in a batch of this size."""
    global_size: int


def compute_full_rows(global_size: int, num_rows: int) -> int:
    """Compute the rows of every batch of that size but the run's last: B, or all rows where an epoch has fewer."""
    return min(global_size, num_rows)


def count_run_rows(num_rows: int, num_epochs: float) -> int:
    """Count the rows that a run trains on, in all its epochs. num_rows: training rows."""
    return max(1, round(num_rows * num_epochs))


def compute_period(fraction: float) -> int:
    """Return k, where one row of every k is held out; a fraction is rounded to one over a whole number."""
    return round(1.0 / fraction)


def count_validation_rows(num_rows: int, fraction: float, split: Literal["hash", "tail"]) -> int:
    """Count the validation rows among `num_rows` training rows; fewer than k rows have none.

    split: with hash one row of every k is held out, with tail the last rows.
    """
    if fraction == 0.0 or num_rows < compute_period(fraction):
        return 0
    return round(fraction * num_rows) if split == "tail" else num_rows // compute_period(fraction)


def list_stages(job: JobConfig, num_rows: int, grown: Sequence[GrownBatch] = ()) -> list[BatchStage]:
    """List the stages of a run over `num_rows` training rows, in order; sizes without a batch are left out.

    grown: sizes so far of a batch that grows by the noise scale, the first one left out; the last one counts for the
    rest of the run.

    A stage ends with the batch that reaches its share of the samples, so that all batches but the run's last are full.
    """
    num_run_rows = count_run_rows(num_rows, job.run.epochs)
    stages: list[BatchStage] = []
    step, row = 0, 0
    for global_size, least_end in _list_sizes(job.batch, num_run_rows, grown):
        full_rows = compute_full_rows(global_size, num_rows)
        num_steps = max(0, -(-(least_end - row) // full_rows))
        end = min(row + num_steps * full_rows, num_run_rows)
        if end > row:
            stages.append(BatchStage(global_size, full_rows, job.get_moments_every(global_size), step, row, end))
        step, row = step + num_steps, end
    return stages


def _list_sizes(batch: BatchConfig, num_run_rows: int, grown: Sequence[GrownBatch]) -> list[tuple[int, int]]:
    """List each batch size of a run with the row up to which it is wanted at least."""
    if batch.growth is not None:
        sizes = [batch.growth.start_size, *(size.global_size for size in grown)]
        return list(zip(sizes, [*(size.start_row for size in grown), num_run_rows], strict=True))
    scheduled = [(stage.global_size, round(stage.until_fraction * num_run_rows)) for stage in batch.schedule]
    return [*scheduled, (batch.global_size, num_run_rows)]
