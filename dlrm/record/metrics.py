"""Metrics of an outcome: an AUC with its standard error, the course of the run, and the results of simple models."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

from pydantic import ValidationError

from dlrm.record.files import OpenRecord

GUESSED_AUC = 0.5
"""AUC of scores that do not depend on the row."""
MAX_STANDARD_ERRORS = 3.0
"""Standard errors by which the AUC of a guess may differ from GUESSED_AUC."""
MAX_STANDARD_ERROR = 0.01
"""Standard error of the AUC above which models can hardly be distinguished."""
MIN_STEPS_OF_RUN = 30
"""Number of steps below which a run gives a warning, since it hardly leaves its warm-up."""
MIN_EVALUATIONS_SINCE_BEST = 2
"""Evaluations in a row without a better model from which a run has got worse: a single one may be chance."""
LOGISTIC_REGRESSION = "logistic_regression"
YARDSTICKS = {
    LOGISTIC_REGRESSION: "logistic regression",
    "lightgbm": "LightGBM",
    "hist_gradient_boosting": "scikit-learn's trees",
}
"""Simple models by the name that their metrics begin with, and what they are called."""
GROUPED_AUC, NUM_GROUPED_ROWS, RECALL_AT, NDCG_AT = "grouped_auc", "num_grouped_rows", "recall_at_", "ndcg_at_"
"""Metrics that `run.group_by` adds: the mean AUC within groups, the number of rows of these groups, and the beginnings
of the names of recall and NDCG at k."""
FIGURES_AT = {RECALL_AT: "recall", NDCG_AT: "NDCG"}
"""Figures at k of groups by the beginning of their names, and what they are called; the larger, the better."""
UNCALIBRATED = "uncalibrated_"
"""Beginning of the names of the metrics that a model has before its recalibration."""
RECALIBRATION_FIGURES = {
    f"{UNCALIBRATED}auc": "AUC before recalibration",
    f"{UNCALIBRATED}log_loss": "log-loss before recalibration",
    f"{UNCALIBRATED}calibration": "calibration before recalibration",
}
"""Metrics of an outcome that `run.recalibrate` adds, and what they are called."""


TASK_FIGURES = {
    "auc": "AUC",
    "log_loss": "log-loss",
    "calibration": "calibration",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "num_rows": "rows with a label",
}
"""Metrics of a task after the first, and what they are called; behind the task's name and a dot in an outcome."""


def describe_further_figures(metrics: Mapping[str, object]) -> dict[str, str]:
    """Return the names of the metrics within groups and of further tasks that `metrics` have, and what they are
    called."""
    names = {GROUPED_AUC: "AUC within groups", NUM_GROUPED_ROWS: "rows in groups of both labels"}
    for beginning, words in FIGURES_AT.items():
        ranks = sorted(int(k) for name in metrics if (k := name.removeprefix(beginning)) != name and k.isdecimal())
        names |= {f"{beginning}{k}": f"{words}@{k} within groups" for k in ranks}
    for name in metrics:
        task, dot, figure = name.rpartition(".")
        if dot and figure in TASK_FIGURES:
            names[name] = f"{task}: {TASK_FIGURES[figure]}"
    return {name: words for name, words in names.items() if metrics.get(name) is not None}


def has_task_figures(metrics: Mapping[str, object]) -> bool:
    """Whether metrics are of a model with several tasks."""
    return any("." in name for name in metrics)


def is_guess(auc: float | None, standard_error: float | None) -> bool:
    """Whether an AUC is no better than a guess, 0.5, as far as enough rows can show."""
    if auc is None or standard_error is None or standard_error > MAX_STANDARD_ERROR:
        return False
    return abs(auc - GUESSED_AUC) <= MAX_STANDARD_ERRORS * standard_error


def format_auc(auc: float, standard_error: float | None) -> str:
    """Format an AUC with its standard error, if known: "0.7812 ± 0.0021"."""
    return f"{auc:.4f}" if standard_error is None else f"{auc:.4f} \N{PLUS-MINUS SIGN} {standard_error:.4f}"


class Course(OpenRecord):
    """Steps and log-losses of the best and the last evaluation of a run, by the rows that choose the best model."""

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
        """Return the course that `metrics` contain.

        None for earlier versions, for runs without an evaluation, and if another trainer means something else.
        """
        if metrics.get("best_step") is None:
            return None
        rows = "evaluation" if metrics.get("validation_log_loss") is None else "validation"
        try:
            return cls.model_validate({**metrics, "rows": rows})
        except ValidationError:
            return None


class YardstickProgress(OpenRecord):
    """Progress of one simple model, in a line before its result."""

    kind: Literal["progress"] = "progress"
    name: str
    """Name of the model, a key of YARDSTICKS."""
    done_fraction: float = 0.0
    """Share that is done, at most: a model may be finished earlier. 0 at its beginning."""
    detail: str = ""
    """Figures of its work; empty if there is nothing to count."""


class YardstickResult(OpenRecord, use_attribute_docstrings=True):
    """Quality of one simple model on the evaluation rows of a run, and what it took."""

    name: str
    """Name of the model, a key of YARDSTICKS."""
    auc: float | None
    """Area under the ROC curve; null if the rows have one class only."""
    auc_standard_error: float | None
    """Standard error of the AUC; null without an AUC."""
    log_loss: float
    """Mean log-loss over the evaluation rows."""
    calibration: float | None
    """Sum of predictions divided by the sum of labels; null if no label is 1."""
    seconds: float
    """Seconds to read the rows, train and predict."""
    num_train_rows: int
    """Training rows that were used: an even sample if there are many."""
    num_rows: int
    """Evaluation rows that were used: an even sample if there are many."""

    def to_metrics(self) -> dict[str, float | None]:
        """Return the entries of the metrics of an outcome, such as `lightgbm_auc`."""
        return {f"{self.name}_{field}": value for field, value in self.model_dump(exclude={"name"}).items()}


def find_yardsticks(metrics: Mapping[str, float | None]) -> list[YardstickResult]:
    """Return the results of simple models in the metrics of an outcome; those that lack a figure are left out."""
    results: list[YardstickResult] = []
    for name in YARDSTICKS:
        fields = {field: metrics.get(f"{name}_{field}") for field in YardstickResult.model_fields if field != "name"}
        with suppress(ValidationError):
            results.append(YardstickResult.model_validate({"name": name, **fields}))
    return results
