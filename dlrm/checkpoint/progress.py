"""Progress of a run: everything in a checkpoint except tensors."""

from pydantic import BaseModel, ConfigDict, Field

from dlrm.gradient_stats.noise import NoiseState
from dlrm.record import EvaluationReport


class Progress(BaseModel):
    """Progress of a run; the same on every rank except for `training_seconds`."""

    model_config = ConfigDict(extra="forbid")

    num_steps: int
    """Number of batches of the whole run."""
    step: int = 0
    """Number of batches consumed."""
    num_samples: int = 0
    """Number of valid rows consumed: the position in the data and in the schedules."""
    num_dropped_in_a_row: int = 0
    training_seconds: float = 0.0
    """Seconds of training on this rank, over all attempts: steps, and waiting for batches."""
    last_evaluation: EvaluationReport | None = None
    noise: NoiseState = Field(default_factory=NoiseState)
    """Noise of the dense gradient, from the moments of the steps so far."""
    at_gamma: float | None = None
    """Share of the dense elements at the smallest factor of variance reduction, at the last measurement."""
    at_one: float | None = None
    """Share of the dense elements at factor 1, which are left unchanged, at the last measurement."""

    @property
    def evaluated_step(self) -> int:
        """Number of batches consumed before the last evaluation; 0 where there was none."""
        return self.last_evaluation.step if self.last_evaluation else 0
