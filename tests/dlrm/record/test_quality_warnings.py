"""What the metrics of a run say against its model, and what they suggest."""

from collections.abc import Mapping

import pytest

from dlrm.record import Course, EvaluationSource, QualityWarning, list_quality_warnings
from tests.dlrm.record.test_yardsticks import LOGISTIC

GOOD: dict[str, float | None] = {
    "auc": 0.81,
    "auc_standard_error": 0.004,
    "log_loss": 0.41,
    "constant_log_loss": 0.55,
    "num_rows": 1000,
    **LOGISTIC.to_metrics(),
}
OVERFITTED = Course(
    last_step=120,
    num_planned_steps=400,
    best_step=40,
    best_log_loss=0.41,
    last_log_loss=0.52,
    num_evaluations_since_best=5,
    rows="validation",
)
IMPROVING = OVERFITTED.model_copy(
    update={"last_step": 400, "best_step": 400, "last_log_loss": 0.41, "num_evaluations_since_best": 0}
)
STEPS_OF_1000_SAMPLES = {"num_samples": 400_000.0, "last_step": 400.0}


def list_warnings(metrics: Mapping[str, float | None]) -> list[QualityWarning]:
    return list_quality_warnings(metrics, EvaluationSource.SHARE)


def name_warnings(metrics: dict[str, float | None]) -> list[str]:
    return [warning.name for warning in list_warnings(metrics)]


def describe_worse(course: Course, **metrics: float) -> str:
    """Return the warning of a run whose model is below logistic regression."""
    own: dict[str, float | None] = {"validation_log_loss": 0.41} if course.rows == "validation" else {}
    [warning] = list_warnings({**GOOD, "auc": 0.79, **own, **course.to_metrics(), **metrics})
    return warning.message


def test_metrics_of_earlier_versions_have_no_warnings() -> None:
    metrics = {"auc": 0.7, "log_loss": 0.4, "constant_log_loss": 0.5, "samples_per_second": 10.0}
    assert list_warnings(metrics) == []
    assert list_warnings({}) == []


def test_a_model_above_logistic_regression_has_no_warning() -> None:
    assert list_warnings(GOOD) == []


def test_a_model_below_logistic_regression_by_less_than_a_standard_error_has_no_warning() -> None:
    assert list_warnings({**GOOD, "auc": 0.797}) == []


def test_a_model_below_logistic_regression_has_a_warning_with_both_figures() -> None:
    [warning] = list_warnings({**GOOD, "auc": 0.79})
    assert warning.name == "worse_than_logistic_regression"
    assert "0.7900 ± 0.0040" in warning.message
    assert "0.8000 ± 0.0040" in warning.message


def test_a_model_worse_than_the_constant_predictor_has_a_warning_with_both_figures() -> None:
    [warning] = list_warnings({**GOOD, "log_loss": 0.56})
    assert warning.name == "worse_than_constant"
    assert "0.5600" in warning.message
    assert "0.5500" in warning.message


def test_a_large_standard_error_has_a_warning() -> None:
    assert name_warnings({**GOOD, "auc_standard_error": 0.011}) == ["few_evaluation_rows"]


def test_rows_of_one_label_have_no_warning_about_the_auc() -> None:
    """Nor one about the log-loss, in which any model is better or worse than the constant by the label alone."""
    assert list_warnings({**GOOD, "auc": None, "auc_standard_error": None, "log_loss": 0.56}) == []


def test_a_run_that_got_worse_is_advised_to_learn_less_with_its_best_step() -> None:
    message = describe_worse(OVERFITTED)
    assert "best after step 40, with a log-loss of 0.4100 on the validation rows" in message
    assert "at the end, after step 120, it was 0.5200" in message
    assert "set fewer run.epochs, a smaller model.embedding_dim" in message
    assert "or use logistic regression" in message
    for opposite in ("more run.epochs", "smaller batch.global_size", "higher learning rates"):
        assert opposite not in message


def test_a_run_that_was_still_getting_better_is_advised_to_learn_more() -> None:
    message = describe_worse(IMPROVING)
    assert "set more run.epochs, or a smaller batch.global_size, or higher learning rates" in message
    assert "fewer" not in message


def test_no_smaller_batch_is_advised_where_the_noise_scale_allows_a_larger_one() -> None:
    for larger in ({"largest_useful_batch": 1024.0}, {"noise_scale_low": 1000.0}):
        assert "batch.global_size" not in describe_worse(IMPROVING, **STEPS_OF_1000_SAMPLES, **larger)
    for smaller in ({"largest_useful_batch": 512.0}, {"noise_scale_low": 900.0}):
        assert "a smaller batch.global_size" in describe_worse(IMPROVING, **STEPS_OF_1000_SAMPLES, **smaller)


@pytest.mark.parametrize("course", [OVERFITTED, IMPROVING])
def test_only_an_unblended_model_is_advised_to_be_blended(course: Course) -> None:
    message = describe_worse(course)
    assert 'run.blend = "logistic"' in message
    assert "run.validation_fraction above 0" in message
    for share in (0.0, 0.3):
        assert "run.blend" not in describe_worse(course, blend_share=share)


def test_a_short_run_warned_to_make_more_steps_is_not_advised_fewer() -> None:
    assert "run.epochs" not in describe_worse(OVERFITTED.model_copy(update={"num_planned_steps": 20, "last_step": 20}))


def test_a_model_worse_than_the_constant_predictor_too_is_advised_once() -> None:
    metrics = {**GOOD, "auc": 0.79, "log_loss": 0.56, **IMPROVING.to_metrics()}
    constant, logistic = list_warnings(metrics)
    assert constant.message.endswith("set lower learning rates")
    assert logistic.message.endswith("of logistic regression on the same columns")
    constant, _ = list_warnings({**metrics, **OVERFITTED.to_metrics()})
    assert "set fewer run.epochs" in constant.message
    never_better = OVERFITTED.model_copy(update={"best_log_loss": 0.61})
    constant, _ = list_warnings({**metrics, **never_better.to_metrics()})
    assert constant.message.endswith("set lower learning rates")


@pytest.mark.parametrize(("auc", "error"), [(0.5, 0.0), (0.505, 0.002), (0.529, 0.01), (0.495, 0.002)])
def test_an_auc_of_a_guess_has_a_warning_and_one_remedy(auc: float, error: float) -> None:
    metrics = {**GOOD, "auc": auc, "auc_standard_error": error, "log_loss": 0.56}
    nothing, constant, logistic = list_warnings(metrics)
    assert nothing.name == "learns_nothing"
    assert f"{auc:.4f} ± {error:.4f}" in nothing.message
    assert nothing.message.endswith("set lower learning rates")
    assert constant.message.endswith("label rate of the training rows")
    assert logistic.message.endswith("of logistic regression on the same columns")


@pytest.mark.parametrize(("auc", "error"), [(0.507, 0.002), (0.493, 0.002), (0.5, 0.011), (0.5, None)])
def test_an_auc_that_may_be_above_or_is_below_a_guess_is_not_called_one(auc: float, error: float | None) -> None:
    assert "learns_nothing" not in name_warnings({**GOOD, "auc": auc, "auc_standard_error": error})


def test_a_blend_of_logistic_regression_alone_has_a_warning_that_the_network_adds_nothing() -> None:
    metrics = {**GOOD, "auc": 0.8, **OVERFITTED.to_metrics()}
    [warning] = list_warnings({**metrics, "blend_share": 1.0})
    assert warning.name == "learns_nothing"
    assert "logistic regression alone" in warning.message
    assert "Of the network: it learned its training rows by heart" in warning.message
    assert list_warnings({**metrics, "blend_share": 0.9}) == []


def test_a_network_that_adds_nothing_is_advised_by_how_its_own_training_went() -> None:
    metrics = {**GOOD, "auc": 0.8, "blend_share": 1.0}
    [improving] = list_warnings({**metrics, **IMPROVING.to_metrics()})
    assert improving.message.endswith(
        "it was still getting better at its end: set more run.epochs, or a smaller batch.global_size, or higher "
        "learning rates"
    )
    # It began far above the log-loss of the constant predictor, and got worse.
    dead = OVERFITTED.model_copy(update={"best_log_loss": 10.0})
    [warning] = list_warnings({**metrics, **dead.to_metrics()})
    assert warning.message.endswith("Of the network: set lower learning rates")
    nothing, constant = list_warnings({**metrics, "log_loss": 0.56, **dead.to_metrics()})
    assert constant.message.endswith("label rate of the training rows")
    assert nothing.message.endswith("set lower learning rates")


def test_a_smaller_batch_is_not_advised_if_a_larger_one_is_useful() -> None:
    short = IMPROVING.model_copy(update={"num_planned_steps": 20, "last_step": 20})
    metrics = {**GOOD, "auc": 0.5, "auc_standard_error": 0.002, **short.to_metrics(), "num_samples": 20_000.0}
    assert "a smaller batch.global_size for more steps" in list_warnings(metrics)[0].message
    assert list_warnings({**metrics, "largest_useful_batch": 100_000.0})[0].message.endswith("set lower learning rates")


@pytest.mark.parametrize(
    ("data_format", "eval_files", "remedy"),
    [
        ("csv", ["later.csv"], "name files with more evaluation rows in data.eval"),
        ("csv", None, "set a larger data.eval_fraction"),
        ("packed", None, "prepare the data with more evaluation rows"),
    ],
)
def test_more_evaluation_rows_are_asked_for_where_they_come_from(
    data_format: str, eval_files: list[str] | None, remedy: str
) -> None:
    source = EvaluationSource.of_job(data_format, eval_files)
    [warning] = list_quality_warnings({**GOOD, "auc_standard_error": 0.011}, source)
    assert remedy in warning.message
    assert ("eval_fraction" in warning.message) == (eval_files is None and data_format == "csv")
