"""Warnings of what the metrics of an outcome say against its model, with what to try, by how the run went."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from dlrm.record.event_names import FEW_EVALUATION_ROWS, LEARNS_NOTHING
from dlrm.record.files import OpenRecord
from dlrm.record.metrics import (
    LOGISTIC_REGRESSION,
    MAX_STANDARD_ERROR,
    Course,
    find_yardsticks,
    format_auc,
    has_task_figures,
    is_guess,
)

BLEND_SHARE = "blend_share"
"""Name of the metric that is the share of logistic regression in the model: 0 if the model was best alone, absent if no
blend was tried."""
MAX_TIMES_CONSTANT = 1.1
"""Log-loss of the best evaluation, as a multiple of the constant predictor's, from which on nothing was learned. The
rows of both may differ, and with them the share of positive ones."""
WORSE_THAN_CONSTANT = "worse_than_constant"
WORSE_THAN_LOGISTIC_REGRESSION = "worse_than_logistic_regression"
_LESS_CAPACITY = (
    "a smaller model.embedding_dim or model.top_mlp, a larger data.vocabulary.min_count, or a "
    "dense_optimizer.weight_decay"
)


class EvaluationSource(StrEnum):
    """Source of the evaluation rows of a job; the value says how to get more of them."""

    SHARE = "set a larger data.eval_fraction, or name files with more rows in data.eval"
    FILES = "name files with more evaluation rows in data.eval"
    PREPARED = "prepare the data with more evaluation rows"

    @classmethod
    def of_job(cls, data_format: str, eval_files: object) -> "EvaluationSource":
        """Return the source for the fields `data.format` and `data.eval` of a job."""
        if eval_files:
            return cls.FILES
        return cls.PREPARED if data_format == "packed" else cls.SHARE


class Remedy(StrEnum):
    """Remedy for a model that is worse than it could be."""

    LOWER_RATES = "lower_rates"
    HIGHER_RATES = "higher_rates"
    SMALLER_BATCH = "smaller_batch"
    MORE_EPOCHS = "more_epochs"
    FEWER_EPOCHS = "fewer_epochs"
    LESS_CAPACITY = "less_capacity"
    BLEND = "blend"
    INSPECTION = "inspection"
    MORE_EVALUATION_ROWS = "more_evaluation_rows"


class QualityWarning(OpenRecord):
    """Warning about the quality of a model, as an event and a sentence."""

    name: str
    """Name of the event."""
    message: str
    """Sentence with the figures, and with what to try."""
    remedies: list[Remedy] = Field(default=[])
    """Remedies that the message names, the first one first; empty if another warning names them."""


@dataclass(frozen=True)
class _Suggestion:
    """Remedies, in words and by name."""

    words: str
    remedies: list[Remedy]


def list_quality_warnings(metrics: Mapping[str, float | None], source: EvaluationSource) -> list[QualityWarning]:
    """List what the metrics of an outcome say against its model; nothing where the run was not evaluated.

    No two of them, and no advice on the batch, ask for the opposite.
    """
    nothing = _check_learning(metrics)
    warnings = [
        nothing,
        _compare_with_constant(metrics, is_advised=nothing is not None),
        _compare_with_logistic_regression(metrics, is_advised=nothing is not None),
        _check_error(metrics, source),
    ]
    return [warning for warning in warnings if warning is not None]


def _is_worse_than_constant(metrics: Mapping[str, float | None]) -> bool:
    log_loss, constant = metrics.get("log_loss"), metrics.get("constant_log_loss")
    if metrics.get("auc") is None:
        # Of rows of one label the better predictor is the one that is further off.
        return False
    return log_loss is not None and constant is not None and log_loss > constant


def _check_learning(metrics: Mapping[str, float | None]) -> QualityWarning | None:
    """Warn where the model, or its network beside logistic regression, has learned nothing of use."""
    auc, error = metrics.get("auc"), metrics.get("auc_standard_error")
    if metrics.get(BLEND_SHARE) == 1.0:
        course = Course.from_metrics(metrics)
        is_hopeless = course is not None and not _was_better_than_constant(course, metrics)
        remedy = _suggest_learning(metrics) if is_hopeless else _suggest_training(metrics)
        finding = "the model is logistic regression alone, since its network adds nothing. Of the network"
    elif auc is not None and is_guess(auc, error):
        finding = f"the model's AUC of {format_auc(auc, error)} is no better than a guess, 0.5"
        remedy = _suggest_learning(metrics)
    else:
        return None
    return _warn(LEARNS_NOTHING, finding, remedy)


def _warn(name: str, finding: str, suggestion: _Suggestion | None) -> QualityWarning:
    """Make a warning of its finding and what to try; None if another warning says that."""
    if suggestion is None:
        return QualityWarning(name=name, message=finding)
    return QualityWarning(name=name, message=f"{finding}: {suggestion.words}", remedies=suggestion.remedies)


def _compare_with_constant(metrics: Mapping[str, float | None], *, is_advised: bool) -> QualityWarning | None:
    """Compare with the constant predictor. is_advised: whether another warning says what to try."""
    if not _is_worse_than_constant(metrics):
        return None
    finding = (
        f"the model's log-loss of {metrics['log_loss']:.4f} is worse than the {metrics['constant_log_loss']:.4f} of "
        "the constant predictor, which gives every row the label rate of the training rows"
    )
    return _warn(WORSE_THAN_CONSTANT, finding, None if is_advised else _suggest_learning(metrics))


def _suggest_learning(metrics: Mapping[str, float | None]) -> _Suggestion:
    """Suggest what to try for a model that has learned nothing of use, by how its run went."""
    course = Course.from_metrics(metrics)
    if course is not None and course.has_overfitted and _was_better_than_constant(course, metrics):
        return _describe_overfitting(course)
    has_few_steps = course is not None and course.is_short and not _is_larger_batch_useful(metrics)
    if has_few_steps:
        words = "set lower learning rates, or a smaller batch.global_size for more steps"
        return _Suggestion(words, [Remedy.LOWER_RATES, Remedy.SMALLER_BATCH])
    return _Suggestion("set lower learning rates", [Remedy.LOWER_RATES])


def _was_better_than_constant(course: Course, metrics: Mapping[str, float | None]) -> bool:
    """Whether the best evaluation was not clearly worse than the constant predictor, on rows that may be others."""
    constant = metrics.get("constant_log_loss")
    return constant is None or course.best_log_loss < MAX_TIMES_CONSTANT * constant


def _compare_with_logistic_regression(
    metrics: Mapping[str, float | None], *, is_advised: bool
) -> QualityWarning | None:
    """Compare with logistic regression. is_advised: whether another warning says what to try."""
    auc = metrics.get("auc")
    found = [result for result in find_yardsticks(metrics) if result.name == LOGISTIC_REGRESSION]
    if auc is None or not found or found[0].auc is None or auc >= found[0].auc - (found[0].auc_standard_error or 0.0):
        return None
    own = format_auc(auc, metrics.get("auc_standard_error"))
    finding = (
        f"the model's AUC of {own} is below the {format_auc(found[0].auc, found[0].auc_standard_error)} of logistic "
        "regression on the same columns"
    )
    # Where the model is worse than the constant predictor too, the warning about that says what to try.
    suggestion = None if is_advised or _is_worse_than_constant(metrics) else _suggest_remedy(metrics)
    return _warn(WORSE_THAN_LOGISTIC_REGRESSION, finding, suggestion)


def _suggest_remedy(metrics: Mapping[str, float | None]) -> _Suggestion:
    """Suggest what to try for a model that has learned less than a simple one, by how its run went."""
    ways = _suggest_training(metrics)
    # Only a model of one task can be blended.
    if metrics.get(BLEND_SHARE) is not None or has_task_figures(metrics):
        return ways
    blend = 'set run.blend = "logistic", which needs a run.validation_fraction above 0'
    words = f"{ways.words}; or blend it with logistic regression: {blend}"
    return _Suggestion(words, [*ways.remedies, Remedy.BLEND])


def _suggest_training(metrics: Mapping[str, float | None]) -> _Suggestion:
    """Suggest how to train a better model, by how the run went."""
    course = Course.from_metrics(metrics)
    if course is None:
        words = "`dlrm data inspect` says whether columns are used as they should"
        return _Suggestion(words, [Remedy.INSPECTION])
    if course.has_overfitted:
        found = _describe_overfitting(course)
        words = f"{found.words}, or use logistic regression, the better model of these rows"
        return _Suggestion(words, found.remedies)
    ways = {Remedy.MORE_EPOCHS: "more run.epochs"}
    if not _is_larger_batch_useful(metrics):
        ways[Remedy.SMALLER_BATCH] = "a smaller batch.global_size"
    finding = "it did not get worse towards its end"
    if course.num_evaluations_since_best == 0:
        finding = "it was still getting better at its end"
        ways[Remedy.HIGHER_RATES] = "higher learning rates"
    return _Suggestion(f"{finding}: set {', or '.join(ways.values())}", list(ways))


def _describe_overfitting(course: Course) -> _Suggestion:
    """Describe how the model got worse, with what helps against it."""
    ways, remedies = f"fewer run.epochs, {_LESS_CAPACITY}", [Remedy.FEWER_EPOCHS, Remedy.LESS_CAPACITY]
    if course.is_short:
        # Such a run has a warning that it needs more steps.
        ways, remedies = _LESS_CAPACITY, [Remedy.LESS_CAPACITY]
    return _Suggestion(f"it learned its training rows by heart (it {course.describe_best()}): set {ways}", remedies)


def _is_larger_batch_useful(metrics: Mapping[str, float | None]) -> bool:
    """Whether the run's advice on the batch, by its noise scale, allows a batch larger than its own."""
    num_samples, num_steps = metrics.get("num_samples"), metrics.get("last_step")
    useful = max(metrics.get("largest_useful_batch") or 0.0, metrics.get("noise_scale_low") or 0.0)
    return bool(num_samples and num_steps) and useful >= (num_samples or 0.0) / (num_steps or 1.0)


def _check_error(metrics: Mapping[str, float | None], source: EvaluationSource) -> QualityWarning | None:
    auc, error = metrics.get("auc"), metrics.get("auc_standard_error")
    if auc is None or error is None or error <= MAX_STANDARD_ERROR:
        return None
    message = (
        f"the AUC is {format_auc(auc, error)}, from only {metrics.get('num_rows') or 0:,.0f} evaluation rows: too few "
        f"to tell models apart that differ by less than {2 * error:.2g}; {source.value}"
    )
    return QualityWarning(name=FEW_EVALUATION_ROWS, message=message, remedies=[Remedy.MORE_EVALUATION_ROWS])
