"""The model: architecture, the widths of its perceptrons, how lists of ids are pooled."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dlrm.config.base import Config, filled
from dlrm.config.errors import invalid

Width = Annotated[int, Field(ge=1, le=65536)]

_CROSSING: dict[str, Any] = {"cross_layers": 3, "cross_rank": 512}
"""What dcn_v2 has beside, and its defaults: those of MLPerf's DLRM-DCNv2."""


class ModelConfig(Config):
    """What is trained. A field that the architecture has, and that is left out or null, gets its default; one that it
    does not have is null."""

    architecture: Literal["dlrm", "dcn_v2"] = "dlrm"
    """How features interact. dlrm: dot products of all pairs (Naumov et al. 2019, arXiv 1906.00091). dcn_v2: low-rank
    cross layers (Wang et al. 2021, arXiv 2008.13535)."""
    embedding_dim: int = Field(default=64, ge=4, le=1024, multiple_of=4)
    """D, numbers in one embedding row; a multiple of 4, which the table kernels need."""
    pooling: Literal["sum", "mean"] = "sum"
    """How the embeddings of a list of ids become one; that of an empty list is zero."""
    bottom_mlp: list[Width] = Field(default=[512, 256, 64], min_length=1, max_length=32)
    """Output widths of the layers over the dense features; the last one is embedding_dim. Not used without any."""
    top_mlp: list[Width] = Field(default=[512, 256, 1], min_length=1, max_length=32)
    """Output widths of the layers over the interactions; the last one is 1, the logit."""
    cross_layers: int | None = Field(default=None, ge=1, le=32)
    """Of dcn_v2: cross layers, one after another; 3."""
    cross_rank: int | None = Field(default=None, ge=1, le=65536)
    """Of dcn_v2: rank of a cross layer's matrix, at most the width that it crosses, where it says all that a full
    matrix does; 512."""

    @model_validator(mode="before")
    @classmethod
    def _crossing_follows_architecture(cls, document: Any) -> Any:
        return filled(document, lambda fields: _CROSSING if fields.get("architecture") == "dcn_v2" else {})

    @model_validator(mode="after")
    def _fields_are_of_the_architecture(self) -> "ModelConfig":
        if self.architecture != "dcn_v2":
            for field in _CROSSING:
                if getattr(self, field) is not None:
                    raise invalid(field, f"{self.architecture} has no {field}", "leave it out, or take dcn_v2")
        return self

    @model_validator(mode="after")
    def _ends_fit(self) -> "ModelConfig":
        if self.bottom_mlp[-1] != self.embedding_dim:
            raise invalid(
                "bottom_mlp",
                f"ends in {self.bottom_mlp[-1]}, but must end in embedding_dim = {self.embedding_dim}",
                f"{[*self.bottom_mlp[:-1], self.embedding_dim]}",
            )
        if self.top_mlp[-1] != 1:
            raise invalid("top_mlp", f"ends in {self.top_mlp[-1]}, but must end in 1", f"{[*self.top_mlp[:-1], 1]}")
        return self
