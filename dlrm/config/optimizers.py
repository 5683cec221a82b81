"""Optimizers: one for the dense parameters, one fused into the tables' update."""

from typing import Any, Literal, cast

from pydantic import Field, model_validator

from dlrm.config.base import Config
from dlrm.config.schedule import ScheduleConfig

DEFAULT_DENSE_RATES = {"adam": 0.0005, "sgd": 0.1}
"""At a batch of 2,048; with sqrt scaling both train at 16,384 (docs/experiments.md)."""


class DenseOptimizerConfig(Config):
    """The optimizer of the dense parameters."""

    name: Literal["adam", "sgd"] = "adam"
    """adam: Kingma & Ba 2015 with beta 0.9 and 0.999, eps 1e-8; sgd: plain."""
    learning_rate: float = Field(default=DEFAULT_DENSE_RATES["adam"], gt=0.0)
    """Rate at a batch of `schedule.base_batch` samples; where it is left out 0.0005 for adam, 0.1 for sgd."""
    schedule: ScheduleConfig = ScheduleConfig(scaling="sqrt")
    """How the rate follows the batch and the run."""

    @model_validator(mode="before")
    @classmethod
    def _rate_follows_name(cls, document: Any) -> Any:
        if not isinstance(document, dict) or "learning_rate" in document:
            return cast("Any", document)
        fields = cast("dict[str, Any]", document)
        rate = DEFAULT_DENSE_RATES.get(str(fields.get("name")))
        return fields if rate is None else {**fields, "learning_rate": rate}


class TableOptimizerConfig(Config):
    """The optimizer fused into the backward pass of the embedding tables."""

    name: Literal["rowwise_adagrad", "sgd"] = "rowwise_adagrad"
    """rowwise_adagrad keeps one number a row; sgd keeps none."""
    learning_rate: float = Field(default=0.02, gt=0.0)
    """Rate at a batch of `schedule.base_batch` samples; Adagrad's hardly moves with the batch."""
    schedule: ScheduleConfig = ScheduleConfig(warmup_fraction=0.0, decay="constant")
    """How the rate follows the batch and the run."""
