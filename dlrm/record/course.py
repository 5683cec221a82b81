"""The course of a run: when its model was best, and how it was at the end. Entries of the metrics of its outcome."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

MIN_STEPS_OF_RUN = 30
"""Number of steps below which a run gives a warning, since it hardly leaves its warm-up."""
MIN_EVALUATIONS_SINCE_BEST = 2
"""Evaluations in a row without a better model from which a run has got worse: a single one may be chance."""


class Course(BaseModel):
    """Steps and log-losses of the best and the last evaluation of a run, by the rows that choose the best model."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    last_step: int
    """Number of batches consumed at the end of the run."""
    num_planned_steps: int
    """Number of batches of the whole run, had it not ended early."""
    best_step: int
    """Number of batches consumed before the best evaluation."""
    best_log_loss: float
    """Log-loss of the best evaluation."""
    last_log_loss: float
    """Log-loss of the last evaluation."""
    num_evaluations_since_best: int
    rows: Literal["validation", "evaluation"]
    """Rows on which the log-losses were measured."""

    @property
    def has_overfitted(self) -> bool:
        """Whether the model got worse on rows that it was not trained on."""
        is_worse = self.last_log_loss > self.best_log_loss
        return is_worse and self.num_evaluations_since_best >= MIN_EVALUATIONS_SINCE_BEST

    @property
    def is_short(self) -> bool:
        """Whether the run had a warning that its steps are few."""
        return self.num_planned_steps < MIN_STEPS_OF_RUN

    def describe_best(self) -> str:
        """Describe when the model was best, as the rest of a sentence."""
        return (
            f"was best after step {self.best_step:,}, with a log-loss of {self.best_log_loss:.4f} on the {self.rows} "
            f"rows; at the end, after step {self.last_step:,}, it was {self.last_log_loss:.4f}"
        )

    def describe_early_end(self) -> str:
        """Describe why the run has ended before its last planned step."""
        return (
            f"the run ended early, after step {self.last_step:,} of {self.num_planned_steps:,}, since "
            f"{self.num_evaluations_since_best} evaluations in a row found no better model (run.patience)"
        )

    def to_metrics(self) -> dict[str, float | None]:
        """Return the entries of the metrics of an outcome."""
        return self.model_dump(exclude={"rows"})

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, float | None]) -> "Course | None":
        """Return the course that `metrics` contain; None for earlier versions and for runs without an evaluation."""
        if metrics.get("best_step") is None:
            return None
        rows = "evaluation" if metrics.get("validation_log_loss") is None else "validation"
        return cls.model_validate({**metrics, "rows": rows})
