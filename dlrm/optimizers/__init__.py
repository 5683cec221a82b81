"""Optimizers of the dense parameters, and the learning rates of a step."""

from dlrm.optimizers.dense import (
    make_dense_optimizer,
    set_average_weight,
    set_batch_fraction,
    set_learning_rate,
)
from dlrm.optimizers.groupwise import AveragingOptimizer
from dlrm.optimizers.rates import LearningRates, StepRates
from dlrm.optimizers.sample_memory import SampleMemory
