"""Batch augmentation: changed copies of each sample, which the dense part is trained on beside it."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dlrm.config.base import Config, Positive, fill_defaults, find_foreign_setting
from dlrm.config.errors import invalid

MAX_COPIES = 64
_SETTINGS: dict[str, dict[str, Any]] = {"feature_dropout": {"rate": 0.1}, "adversarial": {"strength": 0.005}}


class AugmentationConfig(Config):
    """Batch augmentation (Hoffer et al. 2020, arXiv 1901.09335): the dense part is trained on each sample several
    times, once as it is. Rows are looked up, exchanged and updated once; the loss of a sample is the mean over its
    copies. Evaluations have no copies."""

    method: Literal["feature_dropout", "adversarial"] = "feature_dropout"
    """Change of the copies. feature_dropout: each pooled embedding and dense feature is set to 0 at random, and the
    others are divided by 1 - `rate`, as dropout does. adversarial: the pooled embeddings move along the gradient of the
    loss (Liu et al. 2021, ConAdv, arXiv 2106.00221)."""
    copies: int = Field(default=2, ge=1, le=MAX_COPIES)
    """Number of times that each sample is trained on, the first time unchanged; the cost of the dense part in multiples
    of its own."""
    rate: float | None = Field(default=None, gt=0.0, lt=1.0)
    """Probability that a feature of a copy is set to 0, for feature_dropout; null: 0.1."""
    strength: Positive | None = None
    """Length of the move of a copy, as a share of the L2 norm of the sample's pooled embeddings, for adversarial; null:
    0.005. Each further copy moves as far from the one before, along the gradient there."""

    @model_validator(mode="before")
    @classmethod
    def _fill_settings(cls, document: Any) -> Any:
        return fill_defaults(document, lambda fields: _SETTINGS.get(str(fields.get("method", "feature_dropout")), {}))

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        if foreign := find_foreign_setting(self, self.method, _SETTINGS):
            field, (method,) = foreign
            raise invalid(field, f"{self.method} has no {field}", f'leave it out, or method "{method}"')
        return self
