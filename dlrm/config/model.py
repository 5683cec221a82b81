"""Model settings: architecture, layer widths of the MLPs, and pooling of lists of ids."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dlrm.config.base import Auto, Config, fill_defaults
from dlrm.config.errors import invalid

Width = Annotated[int, Field(ge=1, le=65536)]
Widths = Annotated[list[Width], Field(min_length=1, max_length=32)]
MIN_DIM, MAX_DIM, DIM_MULTIPLE = 4, 1024, 4
EmbeddingDim = Annotated[int, Field(ge=MIN_DIM, le=MAX_DIM, multiple_of=DIM_MULTIPLE)]

Architecture = Literal["dlrm", "dcn_v2"]

_CROSS_DEFAULTS: dict[str, Any] = {"cross_layers": 3, "cross_rank": 512}
"""Fields that only dcn_v2 has, with the defaults of MLPerf's DLRM-DCNv2."""


class ModelSpec(Config):
    """The model to train, as a job document states it.

    A field of the chosen architecture that is left out or null gets its default; a field that the architecture does not
    have is null.
    """

    architecture: Architecture | Auto = "auto"
    """Architecture, by how features interact. dlrm: dot products of all pairs (Naumov et al. 2019, arXiv 1906.00091).
    dcn_v2: low-rank cross layers (Wang et al. 2021, arXiv 2008.13535). auto: dcn_v2 for few training rows, where it
    predicts better, and dlrm for many, where it is faster."""
    embedding_dim: EmbeddingDim | Auto = "auto"
    """Number of elements of one embedding row (D); a multiple of 4, which the table kernels need. auto: the last width
    of bottom_mlp if set, otherwise by the number of training rows."""
    pooling: Literal["sum", "mean"] = "sum"
    """Pooling of the embeddings of a list of ids; the pooled embedding of an empty list is zero."""
    bottom_mlp: Widths | Auto = "auto"
    """Output widths of the layers over the dense features; the last one must be embedding_dim. Not used without dense
    features. auto: 512, 256, embedding_dim."""
    top_mlp: Widths = Field(default=[512, 256, 1])
    """Output widths of the layers over the interactions; the last one must be 1, the logit."""
    cross_layers: int | None = Field(default=None, ge=1, le=32)
    """Number of consecutive cross layers in dcn_v2; default 3."""
    cross_rank: int | None = Field(default=None, ge=1, le=65536)
    """Rank of the matrix of a cross layer in dcn_v2; default 512. A larger rank than the width of the layer is reduced
    to the width: it can then express any full matrix."""

    @model_validator(mode="before")
    @classmethod
    def _fill_cross_fields(cls, document: Any) -> Any:
        return fill_defaults(document, lambda fields: _CROSS_DEFAULTS if fields.get("architecture") == "dcn_v2" else {})

    @model_validator(mode="after")
    def _check_cross_fields(self) -> Self:
        if self.architecture == "dlrm":
            for field in _CROSS_DEFAULTS:
                if getattr(self, field) is not None:
                    raise invalid(
                        field, f"{self.architecture} has no {field}", 'leave it out, or set architecture to "dcn_v2"'
                    )
        return self

    @model_validator(mode="after")
    def _check_widths(self) -> Self:
        if self.embedding_dim == "auto" and self.bottom_mlp != "auto" and not _is_embedding_dim(self.bottom_mlp[-1]):
            raise invalid(
                "bottom_mlp",
                f"ends in {self.bottom_mlp[-1]}, which is the embedding dimension",
                f"a last width from {MIN_DIM} to {MAX_DIM} that is a multiple of {DIM_MULTIPLE}",
            )
        if "auto" not in (self.embedding_dim, self.bottom_mlp) and self.bottom_mlp[-1] != self.embedding_dim:
            raise invalid(
                "bottom_mlp",
                f"ends in {self.bottom_mlp[-1]}, but must end in embedding_dim = {self.embedding_dim}",
                f"{[*self.bottom_mlp[:-1], self.embedding_dim]}",
            )
        if self.top_mlp[-1] != 1:
            raise invalid("top_mlp", f"ends in {self.top_mlp[-1]}, but must end in 1", f"{[*self.top_mlp[:-1], 1]}")
        return self


class ModelConfig(ModelSpec):
    """The model to train, with its architecture and dimensions decided."""

    architecture: Architecture = "dlrm"  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Architecture, by how features interact."""
    embedding_dim: EmbeddingDim = 64  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Number of elements of one embedding row (D)."""
    bottom_mlp: Widths = Field(default=[512, 256, 64])  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Output widths of the layers over the dense features; the last one is embedding_dim."""


def _is_embedding_dim(width: int) -> bool:
    return MIN_DIM <= width <= MAX_DIM and width % DIM_MULTIPLE == 0
