"""Groups of dense parameters that are trained differently from the rest."""

from pydantic import Field

from dlrm.config.base import Config
from dlrm.config.bounds import NotNegative


class ParameterGroupConfig(Config):
    """The dense parameters whose names match a pattern, and how they are trained."""

    parameters: str = Field(min_length=1)
    """Shell pattern of parameter names, such as "top.*" or "*.bias"."""
    learning_rate_factor: NotNegative = 1.0
    """Factor on the optimizer's learning rate; 0 leaves the parameters at their initial values."""
    weight_decay: NotNegative | None = None
    """Weight decay of the group; null: the optimizer's own for matrices, none for biases and other vectors."""
    trust_ratio: bool | None = None
    """Whether the rate follows the norm of the parameter, in lars and lamb; null: for matrices only."""
