from dlrm.record import YardstickResult, find_yardsticks, format_auc

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


def test_simple_models_are_found_in_the_metrics_that_they_were_written_to() -> None:
    trees = LOGISTIC.model_copy(update={"name": "lightgbm", "auc": None, "calibration": None})
    metrics = {"auc": 0.7, **trees.to_metrics(), **LOGISTIC.to_metrics()}
    assert metrics["lightgbm_log_loss"] == 0.42
    assert find_yardsticks(metrics) == [LOGISTIC, trees]


def test_metrics_of_earlier_versions_have_no_simple_models() -> None:
    metrics = {"auc": 0.7, "log_loss": 0.4, "constant_log_loss": 0.5, "samples_per_second": 10.0}
    assert find_yardsticks(metrics) == []


def test_an_auc_is_shown_with_its_standard_error_where_that_is_known() -> None:
    assert format_auc(0.78124, 0.00213) == "0.7812 ± 0.0021"
    assert format_auc(0.78124, None) == "0.7812"
