from dlrm.record import YardstickResult, find_yardsticks, format_auc, list_quality_warnings

LOGISTIC = YardstickResult(
    name="logistic_regression",
    auc=0.80,
    auc_standard_error=0.004,
    log_loss=0.42,
    calibration=1.01,
    seconds=1.5,
    num_train_rows=9000,
    num_rows=1000,
)
GOOD = {
    "auc": 0.81,
    "auc_standard_error": 0.004,
    "log_loss": 0.41,
    "constant_log_loss": 0.55,
    "num_rows": 1000,
    **LOGISTIC.to_metrics(),
}


def name_warnings(metrics: dict[str, float | None]) -> list[str]:
    return [warning.name for warning in list_quality_warnings(metrics)]


def test_simple_models_are_found_in_the_metrics_that_they_were_written_to() -> None:
    trees = LOGISTIC.model_copy(update={"name": "lightgbm", "auc": None, "calibration": None})
    metrics = {"auc": 0.7, **trees.to_metrics(), **LOGISTIC.to_metrics()}
    assert metrics["lightgbm_log_loss"] == 0.42
    assert find_yardsticks(metrics) == [LOGISTIC, trees]


def test_metrics_of_earlier_versions_have_no_simple_models_and_no_warnings() -> None:
    metrics = {"auc": 0.7, "log_loss": 0.4, "constant_log_loss": 0.5, "samples_per_second": 10.0}
    assert find_yardsticks(metrics) == []
    assert list_quality_warnings(metrics) == []
    assert list_quality_warnings({}) == []


def test_a_model_above_logistic_regression_has_no_warning() -> None:
    assert list_quality_warnings(GOOD) == []


def test_a_model_below_logistic_regression_by_less_than_a_standard_error_has_no_warning() -> None:
    assert list_quality_warnings({**GOOD, "auc": 0.797}) == []


def test_a_model_below_logistic_regression_has_a_warning_with_both_figures() -> None:
    [warning] = list_quality_warnings({**GOOD, "auc": 0.79})
    assert warning.name == "worse_than_logistic_regression"
    assert "0.7900 ± 0.0040" in warning.message
    assert "0.8000 ± 0.0040" in warning.message


def test_a_model_worse_than_the_constant_predictor_has_a_warning_with_both_figures() -> None:
    [warning] = list_quality_warnings({**GOOD, "log_loss": 0.56})
    assert warning.name == "worse_than_constant"
    assert "0.5600" in warning.message
    assert "0.5500" in warning.message


def test_a_large_standard_error_has_a_warning() -> None:
    assert name_warnings({**GOOD, "auc_standard_error": 0.011}) == ["few_evaluation_rows"]


def test_rows_of_one_label_have_no_warning_about_the_auc() -> None:
    assert list_quality_warnings({**GOOD, "auc": None, "auc_standard_error": None}) == []


def test_an_auc_is_shown_with_its_standard_error_where_that_is_known() -> None:
    assert format_auc(0.78124, 0.00213) == "0.7812 ± 0.0021"
    assert format_auc(0.78124, None) == "0.7812"
