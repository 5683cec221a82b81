"""Simple models that the model of a run is compared with, and what follows: entries of the metrics of its outcome."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from dlrm.record.event_names import FEW_EVALUATION_ROWS

LOGISTIC_REGRESSION = "logistic_regression"
YARDSTICKS = {
    LOGISTIC_REGRESSION: "logistic regression",
    "lightgbm": "LightGBM",
    "hist_gradient_boosting": "scikit-learn's trees",
}
"""Simple models by the name that their metrics begin with, and what they are called."""
MAX_STANDARD_ERROR = 0.01
"""Standard error of the AUC above which models can hardly be told apart."""

WORSE_THAN_CONSTANT = "worse_than_constant"
WORSE_THAN_LOGISTIC_REGRESSION = "worse_than_logistic_regression"


class YardstickResult(BaseModel):
    """Quality of one simple model on the evaluation rows of a run, and what it took."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    """Name of the model, a key of YARDSTICKS."""
    auc: float | None
    """Area under the ROC curve; null where the rows have one class only."""
    auc_standard_error: float | None
    """Standard error of the AUC; null without an AUC."""
    log_loss: float
    calibration: float | None
    """Sum of predictions divided by the sum of labels; null where no label is 1."""
    seconds: float
    """Seconds to read the rows, train and predict."""
    num_train_rows: int
    """Training rows that were used: an even sample where there are many."""
    num_rows: int
    """Evaluation rows that were used: an even sample where there are many."""

    def to_metrics(self) -> dict[str, float | None]:
        """Return the entries of the metrics of an outcome, such as `lightgbm_auc`."""
        return {f"{self.name}_{field}": value for field, value in self.model_dump(exclude={"name"}).items()}


class QualityWarning(BaseModel):
    """Warning about the quality of a model, as an event and a sentence."""

    model_config = ConfigDict(frozen=True)

    name: str
    """Name of the event."""
    message: str
    """Sentence with the figures, and with what to try."""


def find_yardsticks(metrics: Mapping[str, float | None]) -> list[YardstickResult]:
    """Return the results of simple models that `metrics`, those of an outcome, contain."""
    results: list[YardstickResult] = []
    for name in YARDSTICKS:
        fields = {field: metrics.get(f"{name}_{field}") for field in YardstickResult.model_fields if field != "name"}
        if fields["log_loss"] is not None:
            results.append(YardstickResult.model_validate({"name": name, **fields}))
    return results


def list_quality_warnings(metrics: Mapping[str, float | None]) -> list[QualityWarning]:
    """List what the metrics of an outcome say against its model; nothing where the run was not evaluated."""
    warnings = [_compare_with_constant(metrics), _compare_with_logistic_regression(metrics), _check_error(metrics)]
    return [warning for warning in warnings if warning is not None]


def _compare_with_constant(metrics: Mapping[str, float | None]) -> QualityWarning | None:
    log_loss, constant = metrics.get("log_loss"), metrics.get("constant_log_loss")
    if log_loss is None or constant is None or log_loss <= constant:
        return None
    message = (
        f"the model's log-loss of {log_loss:.4f} is worse than the {constant:.4f} of the constant predictor, which "
        "gives every row the label rate of the training rows: set lower learning rates, or a "
        "smaller batch.global_size if there were few steps"
    )
    return QualityWarning(name=WORSE_THAN_CONSTANT, message=message)


def _compare_with_logistic_regression(metrics: Mapping[str, float | None]) -> QualityWarning | None:
    auc = metrics.get("auc")
    found = [result for result in find_yardsticks(metrics) if result.name == LOGISTIC_REGRESSION]
    if auc is None or not found or found[0].auc is None or auc >= found[0].auc - (found[0].auc_standard_error or 0.0):
        return None
    own = format_auc(auc, metrics.get("auc_standard_error"))
    message = (
        f"the model's AUC of {own} is below the {format_auc(found[0].auc, found[0].auc_standard_error)} of logistic "
        "regression on the same columns: set a smaller batch.global_size for more steps, more run.epochs, or higher "
        "learning rates if the loss was still falling; `dlrm data inspect` says whether columns are used as they should"
    )
    return QualityWarning(name=WORSE_THAN_LOGISTIC_REGRESSION, message=message)


def _check_error(metrics: Mapping[str, float | None]) -> QualityWarning | None:
    auc, error = metrics.get("auc"), metrics.get("auc_standard_error")
    if auc is None or error is None or error <= MAX_STANDARD_ERROR:
        return None
    message = (
        f"the AUC is {format_auc(auc, error)}, from only {metrics.get('num_rows') or 0:,.0f} evaluation rows: too few "
        f"to tell models apart that differ by less than {2 * error:.2g}; set a larger data.eval_fraction, or name more "
        "rows in data.eval"
    )
    return QualityWarning(name=FEW_EVALUATION_ROWS, message=message)


def format_auc(auc: float, standard_error: float | None) -> str:
    """Format an AUC with its standard error, where that is known: "0.7812 ± 0.0021"."""
    return f"{auc:.4f}" if standard_error is None else f"{auc:.4f} \N{PLUS-MINUS SIGN} {standard_error:.4f}"
