"""Simple models that the model of a run is compared with: entries of the metrics of its outcome."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

LOGISTIC_REGRESSION = "logistic_regression"
YARDSTICKS = {
    LOGISTIC_REGRESSION: "logistic regression",
    "lightgbm": "LightGBM",
    "hist_gradient_boosting": "scikit-learn's trees",
}
"""Simple models by the name that their metrics begin with, and what they are called."""


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
    """Sum of predictions divided by the sum of labels; null if no label is 1."""
    seconds: float
    """Seconds to read the rows, train and predict."""
    num_train_rows: int
    """Training rows that were used: an even sample where there are many."""
    num_rows: int
    """Evaluation rows that were used: an even sample where there are many."""

    def to_metrics(self) -> dict[str, float | None]:
        """Return the entries of the metrics of an outcome, such as `lightgbm_auc`."""
        return {f"{self.name}_{field}": value for field, value in self.model_dump(exclude={"name"}).items()}


def find_yardsticks(metrics: Mapping[str, float | None]) -> list[YardstickResult]:
    """Return the results of simple models in the metrics of an outcome."""
    results: list[YardstickResult] = []
    for name in YARDSTICKS:
        fields = {field: metrics.get(f"{name}_{field}") for field in YardstickResult.model_fields if field != "name"}
        if fields["log_loss"] is not None:
            results.append(YardstickResult.model_validate({"name": name, **fields}))
    return results
