"""Learning-rate schedules: pure functions of the step, lengths as fractions of the run."""

import math
from typing import Literal

from pydantic import Field

from dlrm.config.base import Config


class ScheduleConfig(Config):
    """Scaling with the batch, linear warm-up, then decay to zero at the end of the run."""

    warmup_fraction: float = Field(default=0.1, ge=0.0, le=0.5)
    """Share of the run over which the rate rises linearly to its peak."""
    decay: Literal["polynomial", "constant"] = "polynomial"
    """Shape after warm-up."""
    power: float = Field(default=2.0, gt=0.0, le=10.0)
    """Exponent of the polynomial decay."""
    base_batch: int = Field(default=2048, ge=1)
    """Samples of the batch for which `learning_rate` was chosen."""
    scaling: Literal["none", "sqrt", "linear"] = "none"
    """How the peak follows B / base_batch."""

    def scale(self, global_size: int) -> float:
        """Factor on the learning rate at a batch of `global_size` samples."""
        ratio = global_size / self.base_batch
        return {"none": 1.0, "sqrt": math.sqrt(ratio), "linear": ratio}[self.scaling]

    def factor(self, step: int, num_steps: int) -> float:
        """Factor on the peak rate at `step`, counted from 0, of a run of `num_steps` steps.

        Warm-up ends in factor 1 at step `warmup_fraction * num_steps`; the first step is above 0.
        Decay is (1 - progress) ** power over what remains, never 0 before the run is over.
        """
        num_warmup_steps = self.warmup_fraction * num_steps
        if step + 1 < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        if self.decay == "constant":
            return 1.0
        num_decay_steps = num_steps - num_warmup_steps
        progress = (step + 1 - max(num_warmup_steps, 1.0)) / max(num_decay_steps, 1.0)
        return max(1.0 - max(progress, 0.0), 1.0 / (num_decay_steps + 1.0)) ** self.power
