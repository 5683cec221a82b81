"""The optimizer of the dense parameters: one of torch's own."""

from collections.abc import Iterable

import torch
from torch.optim import SGD, Adam, Optimizer

from dlrm.config import DenseOptimizerConfig


def make_dense_optimizer(config: DenseOptimizerConfig, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
    """The optimizer that `config` names. Its rate is set before each step, by `LearningRates`."""
    if config.name == "adam":
        return Adam(parameters, lr=config.learning_rate, foreach=True)
    return SGD(parameters, lr=config.learning_rate, foreach=True)
