"""Averaging of the dense weights over ranks, in the place of the all-reduce of their gradients."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dlrm.config.base import Config, Positive, fill_defaults, find_foreign_setting
from dlrm.config.errors import invalid
from dlrm.config.optimizers import DenseOptimizerSpec

_SETTINGS: dict[str, dict[str, Any]] = {
    "local_sgd": {"every": 8},
    "easgd": {"every": 8, "rho": None},
    "dmsgd": {"graph": "exponential"},
    "decentlam": {"graph": "exponential"},
}
"""Settings of each method with their defaults."""


class DenseAveragingConfig(Config):
    """Averaging of the dense weights over ranks: each rank updates its own by the gradient of its own samples. Tables
    are updated as ever, by the whole batch. Evaluations, checkpoints and the exported model have the mean of all ranks'
    weights. What is learned depends on the number of ranks; with one rank nothing changes. A setting of the method gets
    its default if left out or null; settings of other methods are null."""

    method: Literal["local_sgd", "easgd", "dmsgd", "decentlam"] = "local_sgd"
    """Name of the method. local_sgd: all ranks take the mean of their weights now and then (Stich 2019, arXiv
    1805.09767). easgd: a force between each rank's weights and a centre, which is evaluated and exported (Zhang,
    Choromanska and LeCun 2015, arXiv 1412.6651). dmsgd: decentralised momentum SGD, a mean over neighbours at every
    step; decentlam: the same without the bias that momentum adds (both Yuan et al. 2021, arXiv 2104.11981)."""
    every: int | None = Field(default=None, ge=1, le=1_000_000)
    """Number of steps from one exchange of weights to the next, in local_sgd and easgd; default 8. The exchange of a
    dropped step is left out."""
    rho: Positive | None = None
    """Force of the centre on a rank's weights, in easgd: an exchange takes them `rho` times the learning rate of the
    way to the centre, at most 1 / ranks. null: 0.9 / ranks of the way, whatever the rate, as in the paper's
    experiments."""
    graph: Literal["ring", "exponential"] | None = None
    """Ranks that are neighbours, in dmsgd and decentlam. ring: the one before and the one behind; exponential: those
    1, 2, 4, ... before and behind, up to half of the ranks, and so all of five or fewer. A mean counts a rank and each
    of its neighbours alike. Default exponential."""

    @property
    def interval(self) -> int:
        """Number of steps from one exchange of weights to the next; 1 if the method has no choice."""
        return self.every or 1

    @property
    def is_decentralised(self) -> bool:
        """Whether ranks average with their neighbours alone."""
        return "graph" in _SETTINGS[self.method]

    @model_validator(mode="before")
    @classmethod
    def _fill_settings(cls, document: Any) -> Any:
        return fill_defaults(document, _get_settings)

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if foreign := find_foreign_setting(self, self.method, _SETTINGS):
            field, methods = foreign
            raise invalid(field, f"{self.method} has no {field}", f"leave it out, or use {' or '.join(methods)}")
        return self


def _get_settings(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return _SETTINGS.get(str(fields.get("method", "local_sgd")), {})


def check_dense_averaging(
    averaging: DenseAveragingConfig,
    optimizer: DenseOptimizerSpec,
    of_sum: Mapping[str, object],
    of_shared: Mapping[str, object],
) -> None:
    """Raise ValueError if a job sets what ranks with weights of their own cannot have.

    of_sum: settings of the summed gradient, by field. of_shared: settings of weights that all ranks share.
    """
    its_own = "with dense_averaging each rank"
    if optimizer.schedule.follows_gain:
        message = f"adascale needs the gradient summed over ranks, and {its_own} keeps its own"
        raise invalid("dense_optimizer.schedule.scaling", message, "another scaling, or dense_averaging null")
    for settings, message in (
        (of_sum, f"needs the gradient summed over ranks, and {its_own} keeps its own"),
        (of_shared, f"is of weights that all ranks share, and {its_own} has its own"),
    ):
        if (field := next((field for field, value in settings.items() if value is not None), None)) is not None:
            raise invalid(field, message, "null, or dense_averaging null")
    if averaging.is_decentralised and optimizer.name not in ("sgd", "momentum"):
        message = f"{averaging.method} is a momentum SGD, and {optimizer.name} takes other steps"
        raise invalid("dense_optimizer.name", message, '"momentum" or "sgd", or dense_averaging.method "local_sgd"')
    if averaging.method == "decentlam" and optimizer.max_gradient_norm is not None:
        message = "would limit the mean over neighbours too, which decentlam puts into the gradient"
        raise invalid("dense_optimizer.max_gradient_norm", message, 'null, or dense_averaging.method "dmsgd"')
    if optimizer.is_averaging or optimizer.is_preconditioning:
        message = f"{optimizer.name} keeps averages of weights or eigenvectors, which would differ by rank"
        raise invalid("dense_optimizer.name", message, "another optimizer, or dense_averaging null")
