"""Gradient moments, the mean and the mean square of the dense gradient over a batch, and variance reduction by them."""

from typing import Annotated, Literal

from pydantic import Field

from dlrm.config.base import Config

MAX_GROUPS = 1024
MEASURED_EVERY_SAMPLES = 4096
"""Number of samples from one measurement of moments to the next, where moments are only monitored."""


class MomentsConfig(Config):
    """Measurement of gradient moments: they give the noise scale, and variance reduction needs them."""

    estimator: Literal["exact", "groups"] = "exact"
    """Method of measurement. exact: over the gradients of single samples, at the cost of one more matrix product for
    each linear layer. groups: over the mean gradients of `num_groups` parts of the batch (arXiv 2309.13681)."""
    num_groups: int = Field(default=8, ge=2, le=MAX_GROUPS)
    """Number of parts of the global batch, for the estimator groups; a multiple of the number of ranks. The sizes of
    parts differ by one sample at most."""
    fraction: float = Field(default=0.125, gt=0.0, le=1.0)
    """Share of the samples that the estimator exact measures: the first ones of the batch, spread evenly over all
    ranks. groups always measures all samples. The mean is over the whole batch in either case."""
    every: Literal["auto"] | Annotated[int, Field(ge=1, le=10_000)] = "auto"
    """Number of steps from one measurement to the next; the last measurement is used in between. auto: 1 with variance
    reduction; without it, where moments are only monitored, about once in 4,096 samples, since the cost weighs more at
    small batches."""

    def choose_every(self, global_size: int, *, is_for_reduction: bool) -> int:
        """Choose the steps from one measurement to the next at a batch of `global_size` samples.

        is_for_reduction: whether variance reduction uses the moments; it needs them at every step.
        """
        if self.every != "auto":
            return self.every
        return 1 if is_for_reduction else -(-MEASURED_EVERY_SAMPLES // global_size)

    @property
    def has_own_sum(self) -> bool:
        """Whether exact moments cover only a part of the samples, whose gradient is then summed separately."""
        return self.estimator == "exact" and self.fraction < 1.0

    @property
    def num_extra_sums(self) -> int:
        """Number of values that ranks sum for each parameter element, in addition to its gradient, in a measured step;
        the gradient sum of the batch's first half is not counted."""
        return 1 + self.has_own_sum


class VarianceReductionConfig(Config):
    """VRGD (arXiv 2309.13681) on the dense parameters, with any of their optimizers."""

    gamma: float = Field(default=0.1, gt=0.0, le=1.0)
    """Smallest factor on an element; the largest is 1, so that a gamma of 1 reduces nothing."""
    beta3: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Share of the factors that is kept from step to step if the optimizer has a beta2; with other optimizers each step
    uses its own factors."""
    scale: Literal["gradient", "update"] = "gradient"
    """Quantity that is scaled. gradient: the gradient before the optimizer sees it, as in the paper; update: the update
    that the optimizer computes from it (Adam divides a constant factor of its gradient out again)."""
    control: Literal["mean", "shuffled"] | None = None
    """Control for experiments. mean: replaces the factors of a layer by their mean; shuffled: permutes them at random.
    An effect that remains does not depend on the assignment of ratios to elements."""
