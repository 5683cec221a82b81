"""Pruning of the dense matrices while they are trained."""

from typing import Self

from pydantic import Field, model_validator

from dlrm.config.base import Config
from dlrm.config.errors import invalid
from dlrm.config.run import RunSpec

NUM_CUTS = 100
"""Number of times that gradual pruning chooses elements anew."""


class PruningConfig(Config):
    """Magnitude pruning of the dense part: the smallest elements of its matrices, of all together, become zero and stay
    so. Their share rises as s (1 - (1 - t)^3), t from 0 to 1 between two points of the run (Zhu and Gupta 2017, arXiv
    1710.01878, section 3)."""

    share: float = Field(default=0.5, gt=0.0, le=0.99)
    """Share s of the elements of the matrices that are zero in the end; biases and tables stay as they are."""
    from_fraction: float = Field(default=0.1, ge=0.0, le=1.0)
    """Fraction of the run after which pruning begins."""
    until_fraction: float = Field(default=0.5, ge=0.0, le=1.0)
    """Fraction of the run after which all of the share is pruned, and the rest trains on. Equal to `from_fraction`: all
    at once; both 0: the model that `run.warm_start` names is pruned, then retrained (Han et al. 2015, arXiv
    1506.02626; Li et al. 2020, arXiv 2002.11794)."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.until_fraction < self.from_fraction:
            message = f"{self.until_fraction:g} is before pruning begins"
            raise invalid("until_fraction", message, f"from_fraction, {self.from_fraction:g}, or more")
        return self

    def compute_share(self, done: float) -> float:
        """Compute the share that is pruned after the fraction `done` of the run."""
        if done < self.from_fraction:
            return 0.0
        if done >= self.until_fraction:
            return self.share
        progress = (done - self.from_fraction) / (self.until_fraction - self.from_fraction)
        return self.share * (1.0 - (1.0 - round(progress * NUM_CUTS) / NUM_CUTS) ** 3)


def check_pruning(pruning: PruningConfig, run: RunSpec, *, is_growing: bool) -> None:
    """Raise ValueError if a run cannot prune so. is_growing: whether the batch grows with the noise scale."""
    if pruning.until_fraction == 0.0 and run.warm_start is None:
        message = "prunes weights at the start, and without run.warm_start these are random"
        raise invalid("pruning.until_fraction", message, "above 0, or a run.warm_start")
    if is_growing:
        message = "counts elements that pruning holds at zero in the noise scale"
        raise invalid("batch.growth", message, "null, or pruning null")
    if pruning.until_fraction == 0.0:
        return
    for field, is_early, valid in (
        ("keep_model", run.keep_model == "best", '"last"'),
        ("patience", run.patience is not None, "null"),
        ("target_auc", (run.target_auc or 1.0) < 1.0, "null"),
    ):
        if is_early:
            message = "may leave the model of a step before all of pruning.share is pruned"
            raise invalid(f"run.{field}", message, f"{valid}, or pruning.until_fraction 0")
