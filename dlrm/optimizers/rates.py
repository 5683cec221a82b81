"""Learning rates of every step of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlrm.config import (
    BatchStage,
    DenseOptimizerConfig,
    JobConfig,
    ScheduleConfig,
    TableOptimizerConfig,
    compute_peak_rate,
)
from dlrm.config.curves import scale
from dlrm.config.optimizers import get_noise_rule
from dlrm.optimizers.auto_warmup import AutoWarmup
from dlrm.optimizers.gain import GainState


@dataclass(frozen=True)
class StepRates:
    """Learning rates of one step, both for the true (unscaled, mean) gradient, the size of its batch, and pruning."""

    dense: float
    table: float
    growth: float = 1.0
    """k, rows of a full batch as a multiple of the rows of the run's first batch."""
    average_weight: float = 1.0
    """Factor on lr^2 in an average that weights steps by it, so that all samples after the warm-up count alike:
    k (peak of the first batch / peak)^2. Rates that scale with the root of the batch do so by themselves."""
    pruned: float = 0.0
    """Share of the elements of the dense matrices that are pruned before the step."""


@dataclass(frozen=True)
class LearningRates:
    """Learning rates of a run, a function of the position and of the batch there.

    The peak scales with the present batch. Warm-up and decay count samples: the first batch sets the warm-up, so that a
    growing batch does not begin another one. With parts, each is as a run of its own.
    """

    job: JobConfig
    num_run_rows: int
    """Rows that the run trains on. Those of a short batch at its end count as a fraction of a step, so that it changes
    the rates of other steps only in proportion to its size."""
    first: BatchStage
    """Batches that the run begins with."""
    warmup: AutoWarmup | None = None
    """Warm-up of the dense parameters that finds the rate; None if absent."""
    parts: Sequence[BatchStage] = ()
    """Stages of the whole run that each have a warm-up and a decay of their own; empty if it has one of both."""
    gain: GainState | None = None
    """Gain that the dense rate follows; None if it is known beforehand."""
    list_stages: Callable[[], Sequence[BatchStage]] = tuple
    """Function to list all stages of the run, for the gain."""

    def at(self, num_samples: int, stage: BatchStage) -> StepRates:
        """Compute the rates of a step of `stage`. num_samples: rows consumed before it."""
        dense = self.job.dense_optimizer
        first_peak, peak = (compute_peak_rate(dense, size) for size in (self.first.global_size, stage.global_size))
        growth = stage.full_rows / self.first.full_rows
        part = next((part for part in self.parts if num_samples < part.end_row), None)
        pruning = self.job.pruning
        own = self if part is None else LearningRates(self.job, part.end_row - part.start_row, part)
        num_done = num_samples if part is None else num_samples - part.start_row
        return StepRates(
            dense=own._compute_dense_rate(num_done, stage),
            table=own._compute_rate(self.job.table_optimizer, num_done, stage),
            growth=growth,
            average_weight=growth * (first_peak / peak) ** 2,
            pruned=0.0 if pruning is None else pruning.compute_share(num_samples / self.num_run_rows),
        )

    def _compute_dense_rate(self, num_samples: int, stage: BatchStage) -> float:
        optimizer = self.job.dense_optimizer
        if self.gain is not None:
            position = self.gain.compute_share(num_samples, self.list_stages()) * self.num_run_rows
            factor = scale(self.gain.compute(stage.full_rows), get_noise_rule(optimizer.name))
            return optimizer.learning_rate * factor * self._find_factor(optimizer.schedule, position, stage)
        if self.warmup is None:
            return self._compute_rate(optimizer, num_samples, stage)
        found = self.warmup.state
        if found.rate is None or found.ended_at is None:
            return self.warmup.compute_rate(num_samples)
        return found.rate * self._compute_factor(
            optimizer.schedule, num_samples, stage, found.ended_at / stage.full_rows
        )

    def _compute_rate(
        self, optimizer: DenseOptimizerConfig | TableOptimizerConfig, num_samples: int, stage: BatchStage
    ) -> float:
        return compute_peak_rate(optimizer, stage.global_size) * self._find_factor(
            optimizer.schedule, num_samples, stage
        )

    def _find_factor(self, schedule: ScheduleConfig, num_samples: float, stage: BatchStage) -> float:
        """Compute the factor on the peak rate, with a warm-up as long as the first batch sets it."""
        first = self.first
        num_first_steps = schedule.count_warmup_steps(self.num_run_rows / first.full_rows, first.global_size)
        num_warmup_steps = num_first_steps * first.full_rows / stage.full_rows
        return self._compute_factor(schedule, num_samples, stage, num_warmup_steps)

    def _compute_factor(
        self, schedule: ScheduleConfig, num_samples: float, stage: BatchStage, num_warmup_steps: float
    ) -> float:
        full_rows = stage.full_rows
        num_steps, first_step = self.num_run_rows / full_rows, self.first.full_rows / full_rows
        return schedule.factor(num_samples / full_rows, num_steps, num_warmup_steps, first_step)
