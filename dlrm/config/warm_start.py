"""Warm start: training continues from a trained model with new data, as in daily retraining."""

from typing import Annotated

from pydantic import Field, StringConstraints

from dlrm.config.base import Config


class WarmStartConfig(Config):
    """The model from which a run starts instead of random weights. Known ids keep their rows; new ids get new rows
    after them."""

    source: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(alias="from")
    """Id of a job that has succeeded, or the directory of a run or of its model; `dlrm train` also takes the URI of one
    in a bucket, such as s3://bucket/runs/monday."""
    optimizer_state: bool = False
    """Whether the optimizers continue with their state in the named run, which must have kept its checkpoints; false
    resets them."""
