"""The stages of one run: the batches to come, and the steps after which the model is evaluated."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dlrm.checkpoint.progress import RunProgress
from dlrm.config import (
    BatchGrowth,
    BatchStage,
    GrownBatch,
    JobConfig,
    compute_full_rows,
    count_run_rows,
    list_stages,
)
from dlrm.gradient_stats.noise import NoiseState
from sharding.comm.collectives import broadcast_from_rank0
from sharding.comm.process_groups import Ranks


class StageSequence:
    """The stages of one run, as far as its progress goes and on to its end."""

    def __init__(
        self, job: JobConfig, num_rows: int, progress: RunProgress, ranks: Ranks, starts: Sequence[int] | None = None
    ) -> None:
        """List the stages of a run over `num_rows` training rows, and set the number of its steps in `progress`.

        The number is an estimate of a batch that grows by its noise scale, corrected whenever it grows. starts: rows
        before which the model is evaluated; None for evaluations by shares of the run.
        """
        self._job, self._num_rows, self._progress, self._ranks = job, num_rows, progress, ranks
        self._starts = starts
        self._growth = job.batch.growth
        self.num_run_rows = count_run_rows(num_rows, job.run.epochs)
        """Number of rows that the run trains on, in all its epochs."""
        self._list()

    def begin_next(self) -> BatchStage | None:
        """Begin the batches that come next, as far as their size is known; None at the end of the run. Collective.

        They are the next stage, or what is left of the present one; of a batch that grows by its noise scale, those up
        to the next comparison with it.
        """
        progress = self._progress
        if progress.num_samples >= self.num_run_rows:
            return None
        if self._growth is not None and self._is_growth_due(self._growth):
            size = min(2 * self.last.global_size, self._job.batch.global_size)
            progress.grown = [*progress.grown, GrownBatch(start_row=progress.num_samples, global_size=size)]
            self._list()
        step, row = progress.step, progress.num_samples
        stage = _find_stage(self.stages, row)
        end = stage.end_row if self._growth is None else self._find_check(self._growth, stage, row)
        return replace(stage, start_step=step, start_row=row, end_row=end)

    @property
    def least_steps_left(self) -> int:
        """Least number of steps to come: with the largest batch if the batch grows by its noise scale."""
        if self._growth is None:
            return self._progress.num_steps - self._progress.step
        full_rows = compute_full_rows(self._job.batch.global_size, self._num_rows)
        return -(-(self.num_run_rows - self._progress.num_samples) // full_rows)

    @property
    def last(self) -> BatchStage:
        """Stage of the last batch that was trained on; the first one before any."""
        return _find_stage(self.stages, max(self._progress.num_samples - 1, 0))

    def count_samples(self) -> dict[int, int]:
        """Count the samples that the run has trained on by the rows of a full batch, in the order of the run."""
        counts: dict[int, int] = {}
        for stage in self.stages:
            count = min(stage.end_row, self._progress.num_samples) - stage.start_row
            if count > 0:
                counts[stage.full_rows] = counts.get(stage.full_rows, 0) + count
        return counts

    @property
    def is_growing(self) -> bool:
        """Whether the run begins with smaller batches than its largest."""
        return self._job.batch.is_growing

    @property
    def middle(self) -> BatchStage:
        """Stage of the middle one of the run's steps: of a batch that grows, half of the steps are no larger."""
        return find_middle_stage(self.stages)

    def _is_growth_due(self, growth: BatchGrowth) -> bool:
        """Whether the batch doubles now: a check is due, and the noise scale exceeds the last batch. Collective."""
        progress, last = self._progress, self.last
        row, grown = progress.num_samples, progress.grown
        is_decided = row == 0 or (grown and grown[-1].start_row == row)
        # Where a batch is an epoch, a larger size has no more rows.
        is_largest = last.global_size == self._job.batch.global_size or last.full_rows < last.global_size
        if is_decided or is_largest or self._find_check(growth, last, row - last.full_rows) != row:
            return False
        is_exceeded = is_noise_above(progress.noise, growth.noise_factor * last.full_rows)
        # All have the same noise up to rounding, by which processors differ. Batches must not.
        return broadcast_from_rank0(self._ranks, is_exceeded)

    def _find_check(self, growth: BatchGrowth, stage: BatchStage, row: int) -> int:
        """Find the end of the batch of `stage` that reaches the next check behind `row`, or the end of the run."""
        number = math.floor(row / (growth.check_every_fraction * self.num_run_rows))
        while (check := math.ceil(number * growth.check_every_fraction * self.num_run_rows)) <= row:
            number += 1
        num_steps = -(-(check - stage.start_row) // stage.full_rows)
        return min(stage.start_row + num_steps * stage.full_rows, self.num_run_rows)

    def _list(self) -> None:
        stages = list_stages(self._job, self._num_rows, self._progress.grown)
        self.stages = _number_steps(stages, self._progress)
        """All stages of the run, in order, as if a batch that grows by its noise scale grew no more."""
        self._progress.num_steps = self.stages[-1].end_step
        if self._starts is not None:
            self.evaluation_steps = frozenset(start // self.stages[-1].full_rows for start in self._starts)
            return
        steps = list_evaluation_steps(self.stages, self._job.run.eval_every_fraction)
        waits = self._job.run.evaluates_whole_epochs
        self.evaluation_steps = postpone_to_epoch_ends(steps, self.stages, self._num_rows) if waits else steps
        """Steps after which the model is evaluated."""


def is_noise_above(noise: NoiseState, size: float) -> bool:
    """Whether the noise scale is above `size` samples: its estimate, or its lower bound if it has no upper one."""
    interval = noise.interval
    if interval is None:
        return False
    return (interval.low if math.isinf(interval.high) else interval.value) > size


def find_middle_stage(stages: Sequence[BatchStage]) -> BatchStage:
    """Find the stage of the middle step of stages that follow each other; of two middle steps, the later one."""
    middle = (stages[0].start_step + stages[-1].end_step) // 2
    return next((stage for stage in stages if middle < stage.end_step), stages[-1])


def _find_stage(stages: Sequence[BatchStage], row: int) -> BatchStage:
    """Find the stage that has the row at position `row`; the last one behind the end of the run."""
    return next((stage for stage in stages if row < stage.end_row), stages[-1])


def _number_steps(stages: Sequence[BatchStage], progress: RunProgress) -> list[BatchStage]:
    """Number the steps of stages so that the next one follows the last one of `progress`.

    An earlier version ended each epoch with a short batch, so its checkpoint may count more batches.
    """
    present = _find_stage(stages, progress.num_samples)
    num_done = -(-(progress.num_samples - present.start_row) // present.full_rows)
    num_more = progress.step - (present.start_step + num_done)
    return [replace(stage, start_step=stage.start_step + num_more) for stage in stages]


def list_evaluation_steps(stages: Sequence[BatchStage], every_fraction: float) -> frozenset[int]:
    """List the steps after which the model is evaluated: each share of the samples, and the end.

    Shares are of the run's length, with its last batch counted as full.
    """
    first = stages[0]
    num_first_steps = -(-(stages[-1].end_row - first.start_row) // first.full_rows)
    num_evaluations = math.floor(1 / every_fraction + 1e-9)
    ends = [number * every_fraction * num_first_steps * first.full_rows for number in range(1, num_evaluations + 1)]
    return frozenset({*(_find_step(stages, end) for end in ends), stages[-1].end_step})


def postpone_to_epoch_ends(steps: Iterable[int], stages: Sequence[BatchStage], epoch_rows: int) -> frozenset[int]:
    """Postpone each step to the last one whose batch begins in the same epoch, or to the end of the run.

    epoch_rows: training rows of an epoch.
    """

    def find_epoch_end(step: int) -> int:
        stage = next(stage for stage in stages if step <= stage.end_step)
        start_row = stage.start_row + (step - 1 - stage.start_step) * stage.full_rows
        return _find_step(stages, (start_row // epoch_rows + 1) * epoch_rows)

    return frozenset(map(find_epoch_end, steps))


def _find_step(stages: Sequence[BatchStage], row: float) -> int:
    """Find the step that reaches position `row`; the last one of the run if none does."""
    for stage in stages:
        num_steps = math.ceil((row - stage.start_row) / stage.full_rows - 1e-9)
        if num_steps <= stage.num_steps:
            return stage.start_step + num_steps
    return stages[-1].end_step
