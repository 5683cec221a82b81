"""Optimizers of the dense parameters, and the learning rates of a step."""

from dlrm.optimizers.dense import make_dense_optimizer
from dlrm.optimizers.rates import LearningRates, StepRates

__all__ = ["LearningRates", "StepRates", "make_dense_optimizer"]
