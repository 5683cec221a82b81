"""The lines of the spool files: reports of a rank while it runs, and the advice on the batch in one of them.

Each rank appends to two streams, `metrics` and `events`. A line's `seq` counts from 1 within its stream.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from dlrm.record.files import Record
from dlrm.record.metrics import is_guess
from dlrm.record.numbers import Count, FreeJson, Measure, Time

Details = TypeVar("Details", bound=BaseModel)

RunSamples = Annotated[Count | None, Field(ge=1)]
Phase = Literal["starting", "preparing", "loading", "building", "training", "evaluating", "saving", "finishing"]
"""Phases of an attempt. starting: its processes start; finishing: what comes after the last step, until the model is
written."""


class _Line(Record, use_attribute_docstrings=True):
    seq: int = Field(default=0, ge=0)
    """Position in the stream, counted from 1; the writer sets it."""
    time: Time = 0.0
    """Seconds since the epoch; the writer sets it."""


class StartReport(_Line):
    """Start of an attempt: the first line of its metrics. Reports of earlier attempts on later steps are void."""

    kind: Literal["start"] = "start"
    step: Count
    """Number of batches consumed before the attempt: 0, or the number in the checkpoint from which it resumes. Step
    reports of earlier attempts on later steps are void."""
    evaluated_step: Count
    """Number of batches consumed before the last evaluation that counts, 0 if there is none. Evaluation reports of
    earlier attempts on later steps are void: a run that stopped before the evaluation of `step` begins with that
    evaluation."""
    num_samples: Count | None = None
    """Number of valid rows consumed before the attempt; null in reports of earlier versions, as are the others."""
    num_run_samples: RunSamples = None
    """Number of rows that the whole run consumes."""
    global_size: Count | None = None
    """Number of samples of a full batch at the last step before the attempt, or at the first one of the run."""

    @property
    def done_fraction(self) -> float | None:
        """Share of the run's samples that is done; None if the report does not say."""
        if self.num_samples is None or self.num_run_samples is None:
            return None
        return self.num_samples / self.num_run_samples


class StepReport(_Line):
    """One training step, over all ranks."""

    kind: Literal["step"] = "step"
    """Always `step`."""
    step: Count
    """Number of batches consumed, this one included."""
    num_steps: Count
    """Number of batches of the whole run."""
    num_samples: Count
    """Number of valid rows consumed so far, this step included."""
    num_run_samples: RunSamples = None
    """Number of rows that the whole run consumes; null in reports of earlier versions."""
    global_size: Count | None = None
    """Number of samples of a full batch at this step; null in reports of earlier versions."""
    loss: Measure
    """Mean loss over the valid rows of the global batch; null if it was not finite."""
    dense_learning_rate: float
    """Learning rate of the dense parameters at this step."""
    table_learning_rate: float
    """Learning rate of the tables at this step."""
    samples_per_second: float
    """Samples a second in this step alone."""
    dropped: bool = False
    """Whether the step was not finite, so that it has changed nothing."""
    noise_scale: Measure = None
    """Noise scale in samples: the batch at which the noise of its gradient is as large as the gradient (McCandlish et
    al. 2018, arXiv 1812.06162). Smoothed, and of the dense parameters alone; null if moments are not measured, or
    the measurements are too few or too noisy."""
    gsnr: dict[str, Measure] | None = None
    """Signal-to-noise ratio of the gradient of one sample, squared, by layer of the dense part: the inverse of the
    layer's noise scale, smoothed in the same way."""
    share_at_gamma: Measure = None
    """Share of the elements of the dense parameters at the smallest factor of variance reduction, before factors are
    smoothed, at the last measurement of moments; null without variance reduction."""
    share_at_one: Measure = None
    """Share of the elements at factor 1, which are left unchanged, at the same measurement."""

    @property
    def done_fraction(self) -> float:
        """Share of the run that is done: of its samples, since the steps of a batch that grows are not equally long."""
        if self.num_run_samples is None:
            return self.step / max(self.num_steps, 1)
        return self.num_samples / self.num_run_samples

    @property
    def num_samples_left(self) -> float:
        """Number of rows that the run has still to consume; an estimate for reports of earlier versions."""
        if self.num_run_samples is None:
            return max(0, self.num_steps - self.step) * self.num_samples / max(self.step, 1)
        return self.num_run_samples - self.num_samples


class EvaluationReport(_Line):
    """One evaluation, over all evaluation rows."""

    kind: Literal["evaluation"] = "evaluation"
    """Always `evaluation`."""
    step: Count
    """Number of batches consumed before the evaluation."""
    num_rows: Count
    """Number of evaluation rows."""
    auc: Measure
    """Area under the ROC curve; null if the rows have one class only."""
    auc_standard_error: Measure = None
    """Standard error of the AUC, by the choice of the evaluation rows (DeLong et al. 1988); null without an AUC, and in
    reports of earlier versions."""
    log_loss: float
    """Mean log-loss over the evaluation rows."""
    normalized_entropy: Measure
    """Log-loss divided by the log-loss of the constant predictor at the label rate of the evaluation rows; null if
    these have one class only."""
    calibration: Measure
    """Sum of predictions divided by the sum of labels; null if no label is 1."""
    constant_log_loss: float
    """Log-loss, on the same evaluation rows, of the constant predictor at the label rate of the training rows."""
    best_possible_auc: Measure = None
    """AUC of the hidden teacher on the same rows; null on real data."""
    validation_log_loss: Measure = None
    """Log-loss on the validation rows, which choose the best model; null if the run has none."""
    validation_auc: Measure = None
    """AUC on the validation rows; null if there are none, or of one class only, and in reports of earlier
    versions."""
    validation_calibration: Measure = None
    """Calibration on the validation rows; null as the AUC, and if no label is 1."""
    train_auc: Measure = None
    """AUC on the sample of training rows of `run.num_train_eval_rows`; null if there is none, or its rows have one
    class only. Less `auc` it is the gap that training has made: in the first epoch also of rows still to come."""
    train_log_loss: Measure = None
    """Log-loss on the same sample of training rows; null if there is none."""
    grouped: dict[str, Measure] | None = None
    """AUC, recall and NDCG on the evaluation rows within the groups of `run.group_by`, by the names that final metrics
    have; null if the run has no groups."""
    tasks: dict[str, Measure] | None = None
    """Metrics of the tasks after the first on the evaluation rows with their labels, such as `buy.auc`; null if the
    model has one task."""
    seconds: float
    """Seconds that the evaluation took."""

    @property
    def choice_log_loss(self) -> float:
        """Log-loss by which models are compared: on the validation rows, or on the evaluation rows without any."""
        return self.log_loss if self.validation_log_loss is None else self.validation_log_loss

    @property
    def is_no_better_than_constant(self) -> bool:
        """Whether the log-loss is no better than the constant predictor's."""
        return self.log_loss >= self.constant_log_loss

    @property
    def is_guess(self) -> bool:
        """Whether the AUC is no better than a guess."""
        return is_guess(self.auc, self.auc_standard_error)


class ProgressReport(_Line):
    """Progress of a phase before training, after it, or of an evaluation or checkpoint within it."""

    kind: Literal["progress"] = "progress"
    phase: Phase
    done_fraction: Measure = None
    """Share of the phase that is done; null if it is not known."""
    eta_seconds: Measure = None
    """Estimated seconds to the end of the run; null if they are not known, and in reports of earlier versions."""
    message: str = ""
    """Work that is done now, and what comes next."""


class EventReport(_Line):
    """An event worth keeping: a derived number, a dropped step, an error."""

    kind: Literal["event"] = "event"
    name: str
    """Short name such as `data_loaded`, `plan`, `resumed`, `checkpoint_saved`, `step_dropped`, `error`."""
    message: str
    details: FreeJson = Field(default={})

    def parse_details(self, kind: type[Details]) -> Details | None:
        """Parse the details as an event of one kind has them; None if a needed one is missing."""
        try:
            return kind.model_validate(self.details)
        except ValidationError:
            return None


class BatchCost(Record):
    """Cost of reaching the same result with this batch: steps measure time, samples measure data."""

    batch: int
    steps: float
    """Steps, as a multiple of the steps of this run."""
    samples: float
    """Samples, as a multiple of the samples of this run."""
    steps_of_fewest: float
    """Steps, as a multiple of the steps that the largest batches need: S / Smin."""
    samples_of_fewest: float
    """Samples, as a multiple of the samples that the smallest batches need: E / Emin."""


class BatchAdvice(Record):
    """Advice at the end of a run; without a noise scale there is none, and the event's message says why."""

    batch: int
    """Number of samples of this run's batch; of one that grew, of the last one."""
    first_batch: int | None = None
    """Number of samples of this run's first batch, if its batch grew; None if all have one size, and in advice of
    earlier versions."""
    noise_scale: float | None
    """Noise scale in samples, of the last steps of the run and of the dense parameters alone; None: unknown."""
    noise_scale_low: float | None = None
    """Lower bound in samples: the true noise scale is between this and `noise_scale_high` in about 95 of 100 runs. None
    in advice of earlier versions."""
    noise_scale_high: float | None = None
    largest_useful_batch: int | None
    """Largest useful batch, in samples; None: unknown."""
    table: list[BatchCost]
    """Costs by batch, this run's own batch included, or its first and its last; empty if there is no noise scale."""


Report = Annotated[
    StartReport | StepReport | EvaluationReport | ProgressReport | EventReport, Field(discriminator="kind")
]
_REPORT: TypeAdapter[Report] = TypeAdapter(Report)


def parse_whole_reports(lines: Iterable[bytes]) -> Iterator[Report]:
    """Parse spool lines, and leave out those that a full disk or a failing one has damaged."""
    for line in lines:
        with suppress(ValidationError):
            yield parse_report(line)


def parse_report(line: str | bytes) -> Report:
    """Parse one spool line. Raises pydantic.ValidationError if it is not a report."""
    return _REPORT.validate_json(line)
