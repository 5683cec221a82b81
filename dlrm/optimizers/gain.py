"""AdaScale (Johnson et al. 2020, arXiv 2007.05105): the learning rate grows with the batch by the gain of its step."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from dlrm.config import BatchStage
from dlrm.gradient_stats.noise import StepNoise

WINDOW_BATCHES = 1000
"""Batches of the reference size in which estimates forget: the paper keeps a share of 1 - S/1000 from step to step."""


class GainState(BaseModel):
    """Estimates of the gradient's noise, and the work done so far in steps of the reference batch; a part of the
    progress of a run.

    The gain of a batch of S times the reference batch is

        r = (sigma^2 + mu^2) / (sigma^2 / S + mu^2)

    with the squared norm mu^2 of the true gradient, and the variance sigma^2 of the mean gradient of a reference batch.
    A step of gain r counts as r steps of the reference batch. The paper trains until these add up to the steps T of the
    reference run. Here a run has a number of samples, in which only a gain of S all along reaches T. So the schedule is
    read at the steps done over the steps that are expected at the present gain, and ends with the samples; the run
    reports how far from T it was. Deviations: moments of single samples give both estimates without bias, also of the
    first samples of a batch alone; a step uses the estimates up to the step before, since the rates of a step are known
    before its gradient; batches may grow, since neither estimate depends on the batch; a dropped step counts as any
    other; optimizers that divide by the size of the gradient take the root of the gain, as they scale with the batch.
    """

    model_config = ConfigDict(extra="forbid")

    base_batch: int
    """Number of samples of the reference batch."""
    num_samples: int = 0
    """Number of samples that the estimates stand for."""
    trace: float = 0.0
    """tr(Sigma), base_batch times sigma^2."""
    squared_norm: float = 0.0
    """mu^2; its estimate may be negative, and then counts as 0."""
    num_steps: float = 0.0
    """tau, number of steps of the reference batch that the steps so far count as."""

    def compute(self, batch_rows: int) -> float:
        """Compute the gain of a batch of `batch_rows` rows; 1 before the first estimate, and without noise."""
        variance, squared_norm = self.trace / self.base_batch, max(self.squared_norm, 0.0)
        if variance <= 0.0:
            return 1.0
        return (variance + squared_norm) / (variance * self.base_batch / batch_rows + squared_norm)

    def compute_share(self, num_samples: int, stages: Sequence[BatchStage]) -> float:
        """Compute the share of the run that is done after `num_samples` rows, as far as the present gain foretells it.

        stages: all stages of the run.
        """
        to_come = 0.0
        for stage in stages:
            num_rows = max(stage.end_row - max(stage.start_row, num_samples), 0)
            to_come += num_rows / stage.full_rows * self.compute(stage.full_rows)
        return self.num_steps / (self.num_steps + to_come)

    def advance(self, num_rows: int, batch_rows: int) -> None:
        """Count a step of `num_rows` rows; fewer than `batch_rows` count as a part of a step."""
        self.num_steps += num_rows / batch_rows * self.compute(batch_rows)

    def add(self, step: StepNoise, num_samples: int) -> None:
        """Take in the noise of a step. num_samples: samples from one measurement to the next.

        The estimates are means of all measurements until these stand for the window, as in the paper's appendix B.3.
        """
        self.num_samples += num_samples
        weight = max(num_samples / self.num_samples, min(num_samples / (WINDOW_BATCHES * self.base_batch), 1.0))
        self.trace += weight * (sum(step.traces.values()) - self.trace)
        self.squared_norm += weight * (sum(step.squared_norms.values()) - self.squared_norm)
