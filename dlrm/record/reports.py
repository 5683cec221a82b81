"""The lines of the spool files: what a rank says while it runs.

Each rank appends to two streams, `metrics` and `events`. A line's `seq` counts from 1 within its stream.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Phase = Literal["preparing", "loading", "building", "training", "evaluating", "saving"]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    seq: int = Field(default=0, ge=0)
    """Position in its stream, counted from 1; the writer sets it."""
    time: float = 0.0
    """Seconds since the epoch; the writer sets it."""


class StartReport(_Line):
    """Where an attempt begins: the first line of its metrics. What earlier attempts said of later steps is void."""

    kind: Literal["start"] = "start"
    step: int
    """Batches consumed before it: 0, or those of the checkpoint that it goes on from. Step reports of earlier attempts
    on later steps are void."""
    evaluated_step: int
    """Batches consumed before the last evaluation that counts, 0 where there is none. Evaluation reports of earlier
    attempts on later steps are void: a run that stopped before the evaluation of `step` makes it first of all."""


class StepReport(_Line):
    """One training step, over all ranks."""

    kind: Literal["step"] = "step"
    step: int
    """Batches consumed, this one included."""
    num_steps: int
    """Batches of the whole run."""
    num_samples: int
    """Valid rows consumed so far, this step's included."""
    loss: float | None
    """Mean over the valid rows of the global batch; null where it was not finite."""
    dense_learning_rate: float
    table_learning_rate: float
    samples_per_second: float
    """Of this step alone."""
    dropped: bool = False
    """The step was not finite and has changed nothing."""
    noise_scale: float | None = None
    """Samples: the batch at which the noise of its gradient is as large as the gradient (McCandlish et al. 2018, arXiv
    1812.06162). Of the dense parameters, smoothed; null where moments are not measured, or say nothing yet."""
    gsnr: dict[str, float | None] | None = None
    """By layer of the dense part, the signal-to-noise ratio of the gradient of one sample, squared: the inverse of its
    noise scale, smoothed like it."""
    share_at_gamma: float | None = None
    """Of the elements of the dense parameters, those at variance reduction's least factor, before factors are smoothed,
    when moments were measured last; null without variance reduction."""
    share_at_one: float | None = None
    """The same of those that are left as they are."""


class EvaluationReport(_Line):
    """One evaluation, over all evaluation rows."""

    kind: Literal["evaluation"] = "evaluation"
    step: int
    """Batches consumed before it."""
    num_rows: int
    auc: float | None
    """Null where the rows have one class only."""
    log_loss: float
    normalized_entropy: float | None
    """log_loss over that of the constant predictor at the evaluation rows' own rate."""
    calibration: float | None
    """Sum of predictions over sum of labels."""
    constant_log_loss: float
    """Log-loss of the constant predictor at the training rows' rate, on the same evaluation rows."""
    best_possible_auc: float | None = None
    """AUC of the hidden teacher on the same rows; null on real data."""
    seconds: float

    @property
    def is_no_better_than_constant(self) -> bool:
        """Whether the log-loss is no better than that of the constant predictor."""
        return self.log_loss >= self.constant_log_loss


class ProgressReport(_Line):
    """How far a phase before or after training has come."""

    kind: Literal["progress"] = "progress"
    phase: Phase
    done_fraction: float | None = None
    message: str = ""


WARNINGS = frozenset(
    {
        "bad_row",
        "bad_rows",
        "checkpoint_failed",
        "checkpoint_passed_over",
        "checkpoint_waits",
        "few_steps",
        "one_label",
        "short_epoch",
        "step_dropped",
        "warmup_capped",
    }
)
"""Names of the events that whoever started the run should see without looking for them."""


class EventReport(_Line):
    """Something worth keeping: what was derived, a dropped step, an error."""

    kind: Literal["event"] = "event"
    name: str
    """Short word such as `data_loaded`, `plan`, `resumed`, `checkpoint_saved`, `step_dropped`, `error`."""
    message: str
    details: dict[str, Any] = {}


Report = Annotated[
    StartReport | StepReport | EvaluationReport | ProgressReport | EventReport, Field(discriminator="kind")
]
_REPORT: TypeAdapter[Report] = TypeAdapter(Report)


def parse_report(line: str | bytes) -> Report:
    """One spool line. Raises pydantic.ValidationError where it is none."""
    return _REPORT.validate_json(line)
