"""The model: architecture and the widths of its perceptrons."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from dlrm.config.base import Config
from dlrm.config.errors import invalid

Width = Annotated[int, Field(ge=1, le=65536)]


class ModelConfig(Config):
    """DLRM with dot interaction (Naumov et al. 2019, arXiv 1906.00091)."""

    architecture: Literal["dlrm"] = "dlrm"
    """Kind of model."""
    embedding_dim: int = Field(default=64, ge=4, le=1024, multiple_of=4)
    """D, numbers in one embedding row; a multiple of 4, which the table kernels need."""
    bottom_mlp: list[Width] = Field(default=[512, 256, 64], min_length=1, max_length=32)
    """Output widths of the layers over the dense features; the last one is embedding_dim."""
    top_mlp: list[Width] = Field(default=[512, 256, 1], min_length=1, max_length=32)
    """Output widths of the layers over the interactions; the last one is 1, the logit."""

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
