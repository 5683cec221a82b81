"""Run settings: length, evaluations, checkpoints, and when to stop."""

from typing import Literal

from pydantic import Field

from dlrm.config.base import Config
from dlrm.config.warm_start import WarmStartConfig


class RunConfig(Config):
    """Settings of the run. Lengths are epochs or fractions of the run, so that a different batch leaves them
    unchanged."""

    epochs: int = Field(default=1, ge=1, le=1000)
    """Passes over the training rows."""
    eval_every_fraction: float = Field(default=0.1, ge=0.001, le=1.0)
    """Share of the run from one evaluation to the next; the end is always evaluated."""
    target_auc: float | None = Field(default=None, gt=0.5, le=1.0)
    """Evaluation AUC at which the run stops early; null: the run goes to its end."""
    checkpoint_every_seconds: float = Field(default=600.0, ge=0.1)
    """Seconds from one checkpoint to the next, which is the most that a crash can cost. A stop and the end always write
    a checkpoint."""
    keep_checkpoints: int = Field(default=3, ge=1, le=1000)
    """Number of newest checkpoints that are kept."""
    warm_start: WarmStartConfig | None = None
    """Trained model from which the run starts; null: random initial weights."""
    yardsticks: Literal["all", "logistic", "none"] = "all"
    """Simple models that the trained one is compared with at the end, on the same evaluation rows. logistic: logistic
    regression; all: boosted trees too, where LightGBM or scikit-learn is installed; none: no comparison."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Seed of the initial weights and of the order of samples."""
