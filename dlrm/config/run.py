"""The run: how long, how often evaluated, when to stop."""

from pydantic import Field

from dlrm.config.base import Config
from dlrm.config.warm_start import WarmStartConfig


class RunConfig(Config):
    """Lengths are epochs or fractions of the run, so that a change of batch changes nothing else."""

    epochs: int = Field(default=1, ge=1, le=1000)
    """Passes over the training rows."""
    eval_every_fraction: float = Field(default=0.1, ge=0.001, le=1.0)
    """Share of the run between evaluations; the end is always evaluated."""
    target_auc: float | None = Field(default=None, gt=0.5, le=1.0)
    """Evaluation AUC at which the run stops early; null runs to the end."""
    checkpoint_every_seconds: float = Field(default=600.0, ge=0.1)
    """Seconds from one checkpoint to the next: what a crash costs at most. A stop and the end always leave one."""
    keep_checkpoints: int = Field(default=3, ge=1, le=1000)
    """How many of the newest checkpoints stay."""
    warm_start: WarmStartConfig | None = None
    """Where the weights come from; null draws them anew."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Of the initial weights and the order of samples."""
