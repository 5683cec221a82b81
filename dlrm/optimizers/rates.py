"""Learning rates of every step of a run."""

from dataclasses import dataclass

from dlrm.config import JobConfig


@dataclass(frozen=True)
class StepRates:
    """Learning rates of one step, both for the true (unscaled, mean) gradient."""

    dense: float
    table: float


@dataclass(frozen=True)
class LearningRates:
    """Learning rates of a run, a function of the position only."""

    job: JobConfig
    num_steps: float
    """Length of the run in full batches. A short batch at its end counts as a fraction, so that it changes the rates of
    other steps only in proportion to its size."""

    def at(self, step: float) -> StepRates:
        """Compute the rates of a step. step: rows consumed before it, in full batches."""
        rates = [
            optimizer.learning_rate
            * optimizer.schedule.scale(self.job.batch.global_size)
            * optimizer.schedule.factor(step, self.num_steps, self.job.batch.global_size)
            for optimizer in (self.job.dense_optimizer, self.job.table_optimizer)
        ]
        return StepRates(dense=rates[0], table=rates[1])
