"""Advice on quality: it follows the warnings of a run, with figures, and never contradicts them."""

from itertools import product
from typing import Any

import pytest

from dlrm.config.optimizers import get_default_rate
from dlrm.record import Course, EvaluationSource, YardstickResult, find_yardsticks, list_quality_warnings
from service.advice.advisor import advise
from service.advice.facts import Facts
from service.advice.measurement_rules import advise_more_evaluation_rows, advise_variance_reduction
from service.advice.quality_rules import (
    advise_blend,
    advise_crosses,
    advise_fewer_epochs,
    advise_lower_rates,
    advise_more_epochs,
)
from tests.service.advice.facts import make_facts

SIMPLE = YardstickResult(
    name="logistic_regression",
    auc=0.80,
    auc_standard_error=0.004,
    log_loss=0.42,
    calibration=1.0,
    seconds=1.0,
    num_train_rows=9000,
    num_rows=10_000,
)
BEHIND = {"auc": 0.75, "auc_standard_error": 0.005, "log_loss": 0.45, "constant_log_loss": 0.55, "num_rows": 10_000.0}
RISING: dict[str, Any] = {
    "last_step": 100,
    "num_planned_steps": 100,
    "best_step": 100,
    "best_log_loss": 0.45,
    "last_log_loss": 0.45,
    "num_evaluations_since_best": 0,
}
FALLEN = RISING | {"best_step": 40, "last_log_loss": 0.48, "num_evaluations_since_best": 6}
RATES = {"dense_optimizer": {"learning_rate": 0.003}, "table_optimizer": {"learning_rate": 0.02}}


def ended(metrics: dict[str, Any], document: dict[str, Any] | None = None, **facts: Any) -> Facts:
    """Make the facts about a job that has succeeded with these metrics."""
    return make_facts(
        {"run": {"epochs": 2.0}} | (document or {}),
        metrics=metrics,
        warnings=list_quality_warnings(metrics, EvaluationSource.SHARE),
        yardsticks=find_yardsticks(metrics),
        course=Course.from_metrics(metrics),
        **facts,
    )


def test_a_model_worse_than_logistic_regression_wins_at_least_the_difference_by_a_blend() -> None:
    found = advise_blend(ended({**BEHIND, **SIMPLE.to_metrics()}))
    assert found is not None
    assert found.gain is not None
    assert (found.gain.value, found.gain.unit) == (pytest.approx(0.05), "AUC")
    assert found.changes == {"run.blend": "logistic", "run.validation_fraction": 0.1}
    # It was blended already, or is as good.
    assert advise_blend(ended({**BEHIND, **SIMPLE.to_metrics(), "blend_share": 0.3})) is None
    assert advise_blend(ended({**BEHIND, "auc": 0.797, **SIMPLE.to_metrics()})) is None


def test_a_model_below_trees_is_said_to_be_beyond_the_standard_error() -> None:
    trees = SIMPLE.model_copy(update={"name": "hist_gradient_boosting", "auc": 0.7574, "auc_standard_error": 0.001})
    own = {**BEHIND, "auc": 0.7516, "auc_standard_error": 0.001}
    found = advise_crosses(ended({**own, **trees.to_metrics()}, {"model": {"architecture": "dlrm"}}))
    assert found is not None
    assert found.changes == {"model.architecture": "dcn_v2"}
    assert "of 0.7516 ± 0.0010 is below that of scikit-learn's trees, 0.7574 ± 0.0010, on" in found.message
    # The same by chance.
    assert advise_crosses(ended({**own, "auc": 0.7567, **trees.to_metrics()})) is None
    crossed = advise_crosses(ended({**own, **RISING, **trees.to_metrics()}, {"model": {"architecture": "dcn_v2"}}))
    assert crossed is not None
    assert crossed.changes == {}


def test_a_model_that_got_worse_in_few_steps_of_several_epochs_gets_a_smaller_batch_in_one() -> None:
    course = {**FALLEN, "last_step": 55, "num_planned_steps": 55}
    document = {"batch": {"global_size": 65_536}, "run": {"epochs": 4.0}}
    progress = {"num_steps": 55, "num_run_samples": 55 * 65_536}
    metrics = {**BEHIND, **course, **SIMPLE.to_metrics()}
    items = advise(ended(metrics, document, progress=progress)).items
    assert items[0].name == "few_steps"
    # 55 x 65,536 / 4 samples of one epoch; / 240 = 3,754 of a step.
    assert {change.field: change.value for change in items[0].changes} == {"batch.global_size": 2048, "run.epochs": 1.0}
    assert "a batch of 2,048 makes 440 steps of one epoch" in items[0].message
    assert all("epochs" not in item.message for item in items[1:])


def test_a_run_that_was_never_better_than_the_constant_predictor_is_told_to_stop_after_one_epoch() -> None:
    course = Course(**(FALLEN | {"best_log_loss": 4.8, "last_log_loss": 9.3}), rows="evaluation")
    found = advise_fewer_epochs(
        make_facts({"run": {"epochs": 600.0}}, state="RUNNING", course=course, constant_log_loss=0.565)
    )
    assert found is not None
    assert found.changes == {"run.epochs": 1.0}
    assert "4.8000 at best and 9.3000 now on the evaluation rows against 0.5650" in found.message
    assert "Cancel it and train for 1 instead of 600 epochs" in found.message


def test_a_model_that_still_gets_better_trains_for_longer_with_patience() -> None:
    aucs = [(0.74, 0.005), (0.76, 0.005)]
    found = advise_more_epochs(ended({**BEHIND, "auc": 0.76, **RISING}, aucs=aucs))
    assert found is not None
    assert found.gain is not None
    assert found.gain.value == pytest.approx(0.02)
    assert found.changes == {"run.epochs": 4.0, "run.patience": 3}
    # A rise that may be chance, and an AUC that cannot rise further.
    assert advise_more_epochs(ended({**BEHIND, **RISING}, aucs=[(0.757, 0.005), (0.76, 0.005)])) is None
    best = {**BEHIND, "auc": 0.76, "best_possible_auc": 0.764, **RISING}
    assert advise_more_epochs(ended(best, aucs=aucs)) is None
    # Where the epochs were automatic, so were the choice of the model and its end.
    decided = {"run.epochs": 3.0, "run.validation_fraction": 0.1, "run.patience": 5, "run.blend": "logistic"}
    automatic = {"run": {"epochs": "auto"}}
    found = advise_more_epochs(ended({**BEHIND, "auc": 0.76, **RISING}, automatic, aucs=aucs, decided=decided))
    assert found is not None
    assert found.changes == decided | {"run.epochs": 6.0}
    half = advise_more_epochs(ended({**BEHIND, **RISING}, {"run": {"epochs": 0.4}}, aucs=aucs))
    assert half is not None
    assert half.changes == {"run.epochs": 0.8}


def test_a_model_that_got_worse_trains_until_it_was_best() -> None:
    speed = {"num_samples": 400_000.0, "samples_per_second": 1000.0}
    found = advise_fewer_epochs(ended({**BEHIND, **FALLEN, **speed}))
    assert found is not None
    assert found.gain is not None
    # 40 of 100 steps of two epochs; the others took 60 % of 400 s.
    assert found.changes == {"run.epochs": 0.8}
    assert found.gain.value == pytest.approx(240.0)
    assert "got worse in the 60 steps since, from a log-loss of 0.4500 to 0.4800" in found.message
    running = make_facts(state="RUNNING", course=Course(**FALLEN, rows="evaluation"), progress={"eta_seconds": 90.0})
    live = advise_fewer_epochs(running)
    assert live is not None
    assert live.gain is not None
    assert live.gain.value == 90.0


def test_a_model_that_learned_nothing_gets_a_third_of_its_rates() -> None:
    found = advise_lower_rates(ended({**BEHIND, "auc": 0.501}, RATES))
    assert found is not None
    assert found.changes == {"dense_optimizer.learning_rate": 0.001, "table_optimizer.learning_rate": 0.0067}
    assert found.message.startswith("The model's AUC of 0.5010 ± 0.0050 is no better than a guess, 0.5: lower the ")
    # Each alone where one is far above what "auto" would be.
    far = {"dense_optimizer": {"name": "sgd", "learning_rate": 1e6}, "table_optimizer": {"learning_rate": 0.02}}
    found = advise_lower_rates(make_facts(far, state="FAILED", reason="diverged"))
    assert found is not None
    assert found.changes == {"dense_optimizer.learning_rate": "auto"}
    automatic = get_default_rate("sgd")
    assert f'dense_optimizer.learning_rate 1,000,000 to "auto", which would be {automatic} here.' in found.message
    diverged = advise_lower_rates(make_facts(RATES, state="FAILED", reason="diverged", progress={"step": 7}))
    assert diverged is not None
    assert "after step 7" in diverged.message


@pytest.mark.parametrize(
    ("auc", "log_loss", "course", "simple_auc"),
    list(product((0.501, 0.70, 0.85), (0.45, 0.60), (RISING, FALLEN, {}), (0.6, 0.8))),
)
def test_no_advice_asks_for_the_opposite_of_a_warning_or_of_other_advice(
    auc: float, log_loss: float, course: dict[str, Any], simple_auc: float
) -> None:
    simple = SIMPLE.model_copy(update={"auc": simple_auc}).to_metrics()
    metrics = {**BEHIND, "auc": auc, "log_loss": log_loss, **course, **simple}
    facts = ended(metrics, RATES | {"run": {"epochs": 2.0}}, aucs=[(auc - 0.02, 0.005), (auc, 0.005)])
    changes = {change.field: change.value for item in advise(facts).items for change in item.changes}
    warnings = " ".join(warning.message for warning in facts.warnings)
    if "more run.epochs" in warnings:
        assert changes.get("run.epochs", 4.0) > 2.0
    if "fewer run.epochs" in warnings:
        assert changes.get("run.epochs", 0.8) < 2.0
    if "lower learning rates" in warnings:
        assert changes["dense_optimizer.learning_rate"] < 0.003
        assert "run.epochs" not in changes
    if "higher learning rates" in warnings:
        assert "dense_optimizer.learning_rate" not in changes


def test_an_error_that_hides_what_is_looked_for_needs_so_many_more_rows() -> None:
    wide = {**BEHIND, "auc_standard_error": 0.02}
    found = advise_more_evaluation_rows(ended(wide, {"data": {"train": ["a.tsv"], "eval_fraction": 0.1}}))
    assert found is not None
    assert found.gain is not None
    # Four times the rows halve the error.
    assert found.changes == {"data.eval_fraction": 0.4}
    assert found.gain.value == pytest.approx(0.01)
    # A difference of 0.004 is told from chance with a standard error of 0.002: 6.25 times the rows.
    near = {**BEHIND, "auc": 0.796, **SIMPLE.to_metrics()}
    found = advise_more_evaluation_rows(ended(near, {"data": {"train": ["a.tsv"], "eval": ["b.tsv"]}}))
    assert found is not None
    assert "62,500 instead of 10,000 evaluation rows would tell: name files" in found.message
    assert found.changes == {}
    assert advise_more_evaluation_rows(ended({**BEHIND, **SIMPLE.to_metrics()})) is None


@pytest.mark.parametrize(
    ("at_gamma", "at_one", "fraction", "changes"),
    [
        (0.97, 0.01, 0.125, {"moments.fraction": 1.0}),
        (0.97, 0.01, 1.0, {"variance_reduction": False}),
        (0.02, 0.95, 1.0, {"variance_reduction": False}),
        (0.4, 0.3, 1.0, None),
    ],
)
def test_variance_reduction_that_scales_nearly_all_alike_is_said(
    at_gamma: float, at_one: float, fraction: float, changes: dict[str, Any] | None
) -> None:
    document = {"variance_reduction": {}, "moments": {"fraction": fraction}}
    last_step = {"share_at_gamma": at_gamma, "share_at_one": at_one}
    found = advise_variance_reduction(make_facts(document, last_step=last_step))
    assert (None if found is None else found.changes) == changes
    assert advise_variance_reduction(make_facts(last_step=last_step)) is None
