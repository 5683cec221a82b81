"""Variance reduction: each element of the gradient is scaled by its signal-to-noise ratio."""

from typing import Literal

from pydantic import Field

from dlrm.config.base import Config


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
