"""Progress of a run: everything in a checkpoint except tensors."""

from pydantic import BaseModel, ConfigDict, Field

from dlrm.config import GrownBatch
from dlrm.gradient_stats.noise import NoiseState
from dlrm.optimizers.auto_warmup import WarmupState
from dlrm.optimizers.gain import GainState
from dlrm.record import Course, EvaluationReport


class RunProgress(BaseModel):
    """Progress of a run; the same on every rank except for `training_seconds`."""

    model_config = ConfigDict(extra="forbid")

    num_steps: int
    """Number of batches of the whole run."""
    step: int = 0
    """Number of batches consumed."""
    num_samples: int = 0
    """Number of valid rows consumed: the position in the data and in the schedules."""
    grown: list[GrownBatch] = []
    """Sizes so far of a batch that grows by its noise scale, the first one left out."""
    tables_drawn_at: int = 0
    """Number of valid rows consumed before the tables were drawn that train now; 0 if they are the first ones."""
    warmup: WarmupState | None = None
    """State of a warm-up that ends by the training loss; None if absent."""
    gain: GainState | None = None
    """State of the gain that the dense rate follows; None if absent."""
    num_dropped_in_a_row: int = 0
    training_seconds: float = 0.0
    """Seconds of training on this rank, over all attempts: steps, and waiting for batches."""
    last_evaluation: EvaluationReport | None = None
    best_evaluation: EvaluationReport | None = None
    """Evaluation with the lowest log-loss so far, the first of equal ones."""
    num_evaluations_since_best: int = 0
    num_guesses_in_a_row: int = 0
    """Evaluations in a row, up to the last one, whose AUC is no better than a guess."""
    noise: NoiseState = Field(default_factory=NoiseState)
    """Noise of the dense gradient, from the moments of the steps so far."""
    is_large_batch_reported: bool = False
    """Whether the run has said that its batch is far above the noise scale, which it says once."""
    is_guess_reported: bool = False
    """Whether the run has said that its model is no better than a guess, which it says once."""
    at_gamma: float | None = None
    """Share of the dense elements at the smallest factor of variance reduction, at the last measurement."""
    at_one: float | None = None
    """Share of the dense elements at factor 1, which are left unchanged, at the last measurement."""

    def add_evaluation(self, report: EvaluationReport) -> None:
        """Record an evaluation."""
        self.last_evaluation = report
        self.num_guesses_in_a_row = self.num_guesses_in_a_row + 1 if report.is_guess else 0
        best = self.best_evaluation
        if best is not None and report.choice_log_loss >= best.choice_log_loss:
            self.num_evaluations_since_best += 1
        else:
            self.best_evaluation, self.num_evaluations_since_best = report, 0

    @property
    def best_step(self) -> int | None:
        """Number of batches consumed before the best evaluation; None if absent."""
        return self.best_evaluation.step if self.best_evaluation else None

    @property
    def course(self) -> Course | None:
        """Course of the run so far; None before its first evaluation."""
        best, last = self.best_evaluation, self.last_evaluation
        if best is None or last is None:
            return None
        return Course(
            last_step=self.step,
            num_planned_steps=self.num_steps,
            best_step=best.step,
            best_log_loss=best.choice_log_loss,
            last_log_loss=last.choice_log_loss,
            num_evaluations_since_best=self.num_evaluations_since_best,
            rows="evaluation" if best.validation_log_loss is None else "validation",
        )

    @property
    def evaluated_step(self) -> int:
        """Number of batches consumed before the last evaluation; 0 if there was none."""
        return self.last_evaluation.step if self.last_evaluation else 0
