"""Experiment trackers to which a run also writes what it reports."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from dlrm.config.base import FALSE_IS_NULL, Config
from dlrm.config.errors import invalid

_SERVER = re.compile(r"https?://[^/@?#\s]+(/[^@?#\s]*)?")
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._/-]{0,127}$")]


class MlflowConfig(Config):
    """The MLflow experiment to which a run belongs."""

    uri: str | None = Field(default=None, max_length=2048)
    """Address of an MLflow server, such as https://mlflow.example.com; null: the one in the environment variable
    MLFLOW_TRACKING_URI of the trainer, or else the file trackers/mlflow.db of the run directory. Credentials come from
    the environment: MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN. Those of a service
    are used for the server in its own MLFLOW_TRACKING_URI alone."""
    experiment: Label = "dlrm"
    """Name of the experiment, which is made if there is none."""

    @model_validator(mode="after")
    def _check_uri(self) -> Self:
        if self.uri is not None and not _SERVER.fullmatch(self.uri):
            what = "contains credentials" if "@" in self.uri else "is not the address of a server"
            raise invalid("uri", what, "https://host or http://host:port; credentials come from the environment")
        return self


class WandbConfig(Config):
    """The project of Weights & Biases to which a run belongs."""

    project: Label = "dlrm"
    """Name of the project."""
    mode: Literal["offline", "online"] = "offline"
    """Way of the records. offline: into trackers/wandb of the run directory, for `wandb sync` at any time; online: to
    the server too, with the environment's WANDB_API_KEY and WANDB_BASE_URL."""


class TrackersConfig(Config):
    """Trackers to which the launch process writes a run's figures, settings and end, beside the service. They never
    delay the training, and what fails in them is a warning."""

    tensorboard: bool = False
    """Whether TensorBoard's files are written, to trackers/tensorboard of the run directory."""
    mlflow: Annotated[MlflowConfig | None, FALSE_IS_NULL] = None
    """MLflow experiment of the run; null or false: none."""
    wandb: Annotated[WandbConfig | None, FALSE_IS_NULL] = None
    """Weights & Biases project of the run; null or false: none."""

    @property
    def names(self) -> list[str]:
        """Names of the fields of the trackers that are in use."""
        uses = {"tensorboard": self.tensorboard, "mlflow": self.mlflow is not None, "wandb": self.wandb is not None}
        return [name for name, is_used in uses.items() if is_used]
