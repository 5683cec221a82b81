"""Optimizers: one for the dense parameters, one fused into the tables' update."""

from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import Field, model_validator

from dlrm.config.base import Config, filled
from dlrm.config.errors import invalid
from dlrm.config.parameter_groups import ParameterGroupConfig
from dlrm.config.schedule import ScheduleConfig

_MOMENTUM = {"momentum": 0.9, "momentum_dtype": "fp32"}
_ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "momentum_dtype": "fp32"}

SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {"learning_rate": 0.1, "weight_decay": 0.0},
    "momentum": {"learning_rate": 0.03, "weight_decay": 0.0, **_MOMENTUM},
    "adam": {"learning_rate": 0.0005, "weight_decay": 0.0, **_ADAM},
    "adamw": {"learning_rate": 0.0005, "weight_decay": 0.01, **_ADAM},
    "adagrad": {"learning_rate": 0.0003, "weight_decay": 0.0, "eps": 1e-10},
    "lars": {"learning_rate": 0.3, "weight_decay": 0.0001, "trust_coefficient": 0.001, **_MOMENTUM},
    "lamb": {"learning_rate": 0.005, "weight_decay": 0.01, **_ADAM, "eps": 1e-6},
}
"""What each optimizer has, and its defaults; rates at a batch of 2,048 samples (docs/experiments.md)."""

_DENSE_SCHEDULE: dict[str, Any] = {"scaling": "sqrt"}
_TABLE_SCHEDULE: dict[str, Any] = {"warmup_fraction": 0.0, "decay": "constant"}

_CHOSEN = frozenset(field for settings in SETTINGS.values() for field in settings)
TRUST_SCALED = ("lars", "lamb")


class DenseOptimizerConfig(Config):
    """The optimizer of the dense parameters.

    A field that the named optimizer has, and that is left out or null, gets that optimizer's default; one that it
    does not have is null.
    """

    name: Literal["sgd", "momentum", "adam", "adamw", "adagrad", "lars", "lamb"] = "adam"
    """sgd: plain. momentum: SGD with it. adam: Kingma & Ba 2015. adamw: with decoupled weight decay (Loshchilov and
    Hutter 2019). adagrad: Duchi et al. 2011. lars: momentum whose rate follows each tensor's ||w|| / ||g|| (You et al.
    2017, arXiv 1708.03888). lamb: Adam whose rate follows ||w|| / ||update|| (You et al. 2020, arXiv 1904.00962)."""
    learning_rate: float = Field(default=SETTINGS["adam"]["learning_rate"], gt=0.0)
    """Rate at a batch of `schedule.base_batch` samples; each optimizer has its default."""
    momentum: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Share of the velocity that stays from step to step: momentum and lars, 0.9."""
    beta1: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Share of the mean gradient that stays from step to step: adam, adamw and lamb, 0.9."""
    beta2: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Share of the mean squared gradient that stays from step to step: adam, adamw and lamb, 0.999."""
    eps: float | None = Field(default=None, gt=0.0)
    """Added to the root of the squares that divides: adam and adamw 1e-8, lamb 1e-6, adagrad 1e-10."""
    weight_decay: float | None = Field(default=None, ge=0.0)
    """Share of a weight that is added to its gradient (sgd, momentum, adam, adagrad and lars) or to its update (adamw
    and lamb), for matrices: biases are left out, but by `groups`. adamw and lamb 0.01, lars 0.0001, the others 0."""
    trust_coefficient: float | None = Field(default=None, gt=0.0)
    """Of lars: the factor on ||w|| / (||g|| + weight_decay ||w||), 0.001."""
    momentum_dtype: Literal["fp32", "bf16"] | None = None
    """Number format in which the velocity, or Adam's mean gradient, is kept between steps; sums are always of the
    parameters' own. momentum, adam, adamw, lars and lamb, fp32."""
    groups: list[ParameterGroupConfig] = Field(default=[], max_length=100)
    """Dense parameters by the pattern of their names; the first that matches one claims it. Every parameter must be
    claimed, and every pattern must claim one. Empty: all alike."""
    schedule: ScheduleConfig = ScheduleConfig(**_DENSE_SCHEDULE)
    """How the rate follows the batch and the run; scaling is sqrt where it is left out."""

    @property
    def is_adaptive(self) -> bool:
        """Whether it divides by the root of the mean square: a steady factor of the gradient then falls out again."""
        return self.name in ("adam", "adamw", "lamb")

    @property
    def is_trust_scaled(self) -> bool:
        """Whether the rate of a tensor follows its norm."""
        return self.name in TRUST_SCALED

    @model_validator(mode="before")
    @classmethod
    def _settings_follow_name(cls, document: Any) -> Any:
        document = filled(document, lambda fields: SETTINGS.get(str(fields.get("name", "adam")), {}))
        return _with_schedule(document, _DENSE_SCHEDULE)

    @model_validator(mode="after")
    def _fields_are_of_the_optimizer(self) -> "DenseOptimizerConfig":
        for field in sorted(_CHOSEN - SETTINGS[self.name].keys()):
            if getattr(self, field) is not None:
                having = " or ".join(name for name, settings in SETTINGS.items() if field in settings)
                raise invalid(field, f"{self.name} has no {field}", f"leave it out, or take {having}")
        for number, group in enumerate(self.groups):
            if group.trust_ratio is not None and not self.is_trust_scaled:
                message = f"{self.name} has no trust ratio"
                raise invalid(
                    f"groups.{number}.trust_ratio", message, f"leave it out, or take {' or '.join(TRUST_SCALED)}"
                )
        return self


class TableOptimizerConfig(Config):
    """The optimizer fused into the backward pass of the embedding tables."""

    name: Literal["rowwise_adagrad", "adagrad", "sgd"] = "rowwise_adagrad"
    """rowwise_adagrad keeps one number a row, adagrad one a weight; sgd keeps none."""
    learning_rate: float = Field(default=0.02, gt=0.0)
    """Rate at a batch of `schedule.base_batch` samples; Adagrad's hardly moves with the batch."""
    schedule: ScheduleConfig = ScheduleConfig(**_TABLE_SCHEDULE)
    """How the rate follows the batch and the run; without warm-up, and constant, where that is left out."""

    @model_validator(mode="before")
    @classmethod
    def _schedule_is_filled(cls, document: Any) -> Any:
        return _with_schedule(document, _TABLE_SCHEDULE)


def _with_schedule(document: Any, defaults: Mapping[str, Any]) -> Any:
    """An optimizer's document, what its schedule leaves out filled in: naming one field changes no other."""
    if not isinstance(document, dict) or "schedule" not in document:
        return cast("Any", document)
    fields = cast("dict[str, Any]", document)
    return {**fields, "schedule": filled(fields["schedule"], lambda _: defaults)}
