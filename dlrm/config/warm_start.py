"""Going on from a trained model with new data: daily retraining."""

from typing import Annotated

from pydantic import Field, StringConstraints

from dlrm.config.base import Config


class WarmStartConfig(Config):
    """What a run starts from instead of random weights. Ids keep their rows; new ones get new rows behind them."""

    source: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(alias="from")
    """Id of a job that has succeeded, or the directory of a run or of its model."""
    optimizer_state: bool = False
    """Whether the optimizers go on with what they had gathered, which only a run with its checkpoints has; false starts
    them anew."""
