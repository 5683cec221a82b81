"""AutoWU: a warm-up that ends by the training loss, so that no learning rate has to be chosen."""

from typing import Self

from pydantic import Field, model_validator

from dlrm.config.base import Config, Positive
from dlrm.config.curves import MAX_WARMUP
from dlrm.config.errors import invalid


class AutoWarmupConfig(Config):
    """AutoWU (Kim et al. 2021, arXiv 2107.05855): the rate rises exponentially until the training loss no longer falls,
    then decays to zero at the end of the run from the rate at which the loss was least."""

    first_rate: Positive = 1e-5
    """Learning rate of the first step."""
    last_rate: Positive = 1.0
    """Learning rate that the warm-up reaches if the loss falls all the time. Default 1 in sgd, momentum and lars; 0.1
    in the other optimizers, whose updates are about as long as the rate."""
    max_fraction: float = Field(default=0.5, gt=0.0, le=MAX_WARMUP)
    """Largest share of the run that the warm-up takes; the rate reaches `last_rate` at its end."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)
    """Least probability that the least loss lies in the past, for a test to count."""
    patience: int = Field(default=3, ge=1, le=50)
    """Number of tests in a row that end the warm-up; there are 50 in `max_fraction` of the run."""

    @model_validator(mode="after")
    def _check_rates(self) -> Self:
        if self.last_rate <= self.first_rate:
            raise invalid("last_rate", f"{self.last_rate:g} is not above first_rate", f"more than {self.first_rate:g}")
        return self

    def rise(self, fraction: float) -> float:
        """Compute the rate of the warm-up where `fraction` of the run is done."""
        return self.first_rate * (self.last_rate / self.first_rate) ** min(fraction / self.max_fraction, 1.0)
