"""Optimizers: one for the dense parameters, one fused into the tables' update."""

from typing import Literal

from pydantic import Field

from dlrm.config.base import Config
from dlrm.config.schedule import ScheduleConfig


class DenseOptimizerConfig(Config):
    """The optimizer of the dense parameters."""

    name: Literal["sgd", "adam"] = "sgd"
    """sgd: plain; adam: Kingma & Ba 2015 with beta 0.9 and 0.999, eps 1e-8."""
    learning_rate: float = Field(default=1.0, gt=0.0)
    """Rate at a batch of `schedule.base_batch` samples; Adam wants about 0.001."""
    schedule: ScheduleConfig = ScheduleConfig(scaling="sqrt")
    """How the rate follows the batch and the run."""


class TableOptimizerConfig(Config):
    """The optimizer fused into the backward pass of the embedding tables."""

    name: Literal["rowwise_adagrad", "sgd"] = "rowwise_adagrad"
    """rowwise_adagrad keeps one number a row; sgd keeps none."""
    learning_rate: float = Field(default=0.02, gt=0.0)
    """Rate at a batch of `schedule.base_batch` samples; Adagrad's hardly moves with the batch."""
    schedule: ScheduleConfig = ScheduleConfig(warmup_fraction=0.0, decay="constant")
    """How the rate follows the batch and the run."""
