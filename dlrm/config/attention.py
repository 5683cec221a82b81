"""Attention over sequences: the lists of a row whose order counts."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dlrm.config.base import Config, fill_defaults, refuse_foreign_setting
from dlrm.config.tasks import Width

NO_FILES_OF_SEQUENCES = "each table that a sequence reads would have a bound of its own"
NOT_PRECONDITIONED = "has factors of linear layers over one row of a sample, and attention is over many"
"""Fault of a preconditioner, for messages."""
NO_SEQUENCES = "is over sequences, and the rows have none", "null, or a column of data.schema with a sequence"
"""Fault of an attention without any sequence, and what would be valid, for messages."""
AttentionKind = Literal["din", "transformer", "hstu"]

_SETTINGS: dict[str, dict[str, Any]] = {
    "din": {"hidden": [80, 40]},
    "transformer": {"num_layers": 1, "num_heads": 2, "hidden": [256]},
    "hstu": {"num_layers": 1, "num_heads": 2},
}
"""Fields that only some kinds have, with their defaults; the authors' code has the same widths for din."""


class AttentionConfig(Config):
    """The part of a model that makes one vector of a sequence and its target; it interacts as other vectors do.

    A field of the chosen kind that is left out or null gets its default; a field that the kind does not have is null.
    """

    kind: AttentionKind = "din"
    """Kind of attention. din: the mean of the positions, weighted by a perceptron that compares each with the target
    (Zhou et al. 2018, arXiv 1706.06978). transformer: self-attention among the positions and the target (Chen et al.
    2019, arXiv 1905.06874). hstu: pointwise attention, without a softmax, to earlier positions (Zhai et al. 2024, arXiv
    2402.17152)."""
    num_layers: int | None = Field(default=None, ge=1, le=16)
    """Number of consecutive layers in transformer and hstu; default 1: the target attends to the positions. With more,
    the positions attend to each other first."""
    num_heads: int | None = Field(default=None, ge=1, le=64)
    """Number of parts of a vector that attend separately, in transformer and hstu; divides embedding_dim; default 2."""
    hidden: Annotated[list[Width], Field(min_length=1, max_length=8)] | None = None
    """Widths of the hidden layers of the perceptron over each position, in din and transformer; default 80, 40 in din
    and 256 in transformer."""

    @model_validator(mode="before")
    @classmethod
    def _fill_settings(cls, document: Any) -> Any:
        return fill_defaults(document, lambda fields: _SETTINGS.get(str(fields.get("kind", "din")), {}))

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        refuse_foreign_setting(self, "kind", _SETTINGS)
        return self
