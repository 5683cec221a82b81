"""Groups of dense parameters that are trained otherwise than the rest."""

from pydantic import Field

from dlrm.config.base import Config


class ParameterGroupConfig(Config):
    """The dense parameters whose names match a pattern, and how they are trained."""

    parameters: str = Field(min_length=1)
    """Pattern of names as a shell has it, such as "top.*" or "*.bias"."""
    learning_rate_factor: float = Field(default=1.0, ge=0.0)
    """On the rate of the optimizer; 0 leaves the parameters as they began."""
    weight_decay: float | None = Field(default=None, ge=0.0)
    """null: that of the optimizer for matrices, none for biases and other vectors."""
    trust_ratio: bool | None = None
    """Of lars and lamb: whether the rate follows the norm of the parameter. null: of matrices alone."""
