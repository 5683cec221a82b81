"""Where a run stands: all of it that is not a weight."""

from pydantic import BaseModel, ConfigDict, Field

from dlrm.gradient_stats.noise import NoiseState
from dlrm.record import EvaluationReport


class Progress(BaseModel):
    """The same on every rank, but for `training_seconds`."""

    model_config = ConfigDict(extra="forbid")

    num_steps: int
    """Batches of the whole run."""
    step: int = 0
    """Batches consumed: the position in the data, and in the schedules."""
    num_samples: int = 0
    """Valid rows consumed."""
    num_dropped_in_a_row: int = 0
    training_seconds: float = 0.0
    """On this rank, over all attempts: waiting for batches and steps, without evaluations and checkpoints."""
    last_evaluation: EvaluationReport | None = None
    noise: NoiseState = Field(default_factory=NoiseState)
    """Of the dense gradient, from the moments of the steps so far."""
    at_gamma: float | None = None
    """Share of the dense parameters' elements at variance reduction's least factor, when it was measured last."""
    at_one: float | None = None
    """The same of those that are left as they are."""

    @property
    def is_no_better_than_constant(self) -> bool:
        """Whether the last evaluation's log-loss is no better than that of the constant predictor."""
        last = self.last_evaluation
        return last is not None and last.log_loss >= last.constant_log_loss

    @property
    def evaluated_step(self) -> int:
        """Batches consumed before the last evaluation; 0 where there was none."""
        return self.last_evaluation.step if self.last_evaluation else 0
