"""Learning rates of every step of a run."""

from dataclasses import dataclass

from dlrm.config import BatchStage, DenseOptimizerConfig, JobConfig, TableOptimizerConfig, compute_peak_rate


@dataclass(frozen=True)
class StepRates:
    """Learning rates of one step, both for the true (unscaled, mean) gradient."""

    dense: float
    table: float


@dataclass(frozen=True)
class LearningRates:
    """Learning rates of a run, a function of the position and of the batch there.

    The peak scales with the present batch. Warm-up and decay count samples: the warm-up is that of the first batch, so
    that a batch that grows does not begin another one.
    """

    job: JobConfig
    num_run_rows: int
    """Rows that the run trains on. Those of a short batch at its end count as a fraction of a step, so that it changes
    the rates of other steps only in proportion to its size."""
    first: BatchStage
    """Batches that the run begins with."""

    def at(self, num_samples: int, stage: BatchStage) -> StepRates:
        """Compute the rates of a step of `stage`. num_samples: rows consumed before it."""
        return StepRates(
            dense=self._compute_rate(self.job.dense_optimizer, num_samples, stage),
            table=self._compute_rate(self.job.table_optimizer, num_samples, stage),
        )

    def _compute_rate(
        self, optimizer: DenseOptimizerConfig | TableOptimizerConfig, num_samples: int, stage: BatchStage
    ) -> float:
        schedule, first, full_rows = optimizer.schedule, self.first, stage.full_rows
        num_first_steps = schedule.count_warmup_steps(self.num_run_rows / first.full_rows, first.global_size)
        num_warmup_steps = num_first_steps * first.full_rows / full_rows
        num_steps, first_step = self.num_run_rows / full_rows, first.full_rows / full_rows
        factor = schedule.factor(num_samples / full_rows, num_steps, num_warmup_steps, first_step)
        return compute_peak_rate(optimizer, stage.global_size) * factor
