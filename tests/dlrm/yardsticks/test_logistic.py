"""Logistic regression, against the formula of its loss and against scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as Reference

from dlrm.data.rows import Rows
from dlrm.metrics.binary import auc, constant_log_loss, log_loss
from dlrm.yardsticks.logistic import LogisticRegression, fit_logistic_regression
from tests.dlrm.yardsticks.memory_rows import COUNTRY, SITE, TAGS, MemoryRows, draw_rows, make_columns

MAX_BYTES = 1 << 30
CASES = {
    "all kinds of columns": draw_rows(3000),
    "weighted rows": draw_rows(3000, weighted=True),
    "dense columns alone": draw_rows(2000, features=()),
    "ids alone": draw_rows(2000, features=(SITE, COUNTRY), num_dense=0),
    "lists alone": draw_rows(2000, features=(TAGS,), num_dense=0),
}


def compute_gradient(source: MemoryRows, model: LogisticRegression, *, is_mean: bool) -> np.ndarray:
    """The gradient of the penalised mean log-loss at the weights of `model`, from its formula, in float64.

    The penalty is on the weights of dense columns of unit variance.
    """
    rows = source.rows
    weights = np.ones(rows.num_rows) if rows.weights is None else rows.weights.astype(np.float64)
    dense = rows.dense.astype(np.float64)
    deviations = np.sqrt(np.average((dense - np.average(dense, axis=0, weights=weights)) ** 2, axis=0, weights=weights))
    scale = np.ones(len(model.weights))
    scale[1 : 1 + dense.shape[1]] = deviations
    columns = make_columns(source.schema, rows, is_mean=is_mean)
    errors = 1 / (1 + np.exp(-(columns @ model.weights))) - rows.labels
    gradient = columns.T @ (weights * errors) / weights.sum()
    penalty = model.weights * scale / (model.strength * rows.num_rows)
    penalty[0] = 0
    return gradient / scale + penalty


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_mean", [False, True])
def test_the_gradient_of_the_penalised_loss_is_nearly_zero_at_the_weights(case: str, is_mean: bool) -> None:
    source = CASES[case]
    model = fit_logistic_regression(source, MAX_BYTES, is_mean=is_mean)
    gradient = compute_gradient(source, model, is_mean=is_mean)
    # A fit ends where another step would lower the mean loss by less than 1e-6, which bounds the gradient so.
    assert np.abs(gradient).max() < 1e-3


@pytest.mark.parametrize("case", CASES)
def test_rows_are_ranked_as_by_scikit_learn(case: str) -> None:
    source = CASES[case]
    model = fit_logistic_regression(source, MAX_BYTES, is_mean=False)
    rows, fresh = source.rows, draw_rows(2000, source.schema.features, source.schema.num_dense, seed=1).rows
    means, deviations = rows.dense.mean(axis=0), rows.dense.std(axis=0)

    def make_inputs(of: MemoryRows) -> np.ndarray:
        columns = make_columns(of.schema, of.rows, is_mean=False)[:, 1:]
        columns[:, : len(means)] = (columns[:, : len(means)] - means) / deviations
        return columns

    reference = Reference(C=model.strength, max_iter=1000, tol=1e-8)
    reference.fit(make_inputs(source), rows.labels, sample_weight=rows.weights)
    expected = auc(fresh.labels, reference.decision_function(make_inputs(MemoryRows(source.schema, fresh))))
    assert auc(fresh.labels, model.predict(fresh)) == pytest.approx(expected, abs=1e-3)


def test_two_fits_have_the_same_weights() -> None:
    first, second = (fit_logistic_regression(draw_rows(2000), MAX_BYTES, is_mean=False) for _ in range(2))
    assert np.array_equal(first.weights, second.weights)


def test_a_fit_to_noise_is_hardly_worse_than_the_constant_predictor_on_other_rows() -> None:
    def draw_noise(seed: int) -> MemoryRows:
        source, random = draw_rows(3000, seed=seed), np.random.default_rng(seed)
        labels = (random.random(3000) < 0.3).astype(np.float32)
        return MemoryRows(source.schema, Rows(labels, source.rows.dense, source.rows.ids))

    model, fresh = fit_logistic_regression(draw_noise(1), MAX_BYTES, is_mean=False), draw_noise(2).rows
    assert log_loss(fresh.labels, model.predict(fresh)) < constant_log_loss(fresh.labels, 0.3) + 0.01


def test_ids_that_no_training_row_has_add_nothing() -> None:
    source = draw_rows(500, features=(SITE,), num_dense=0)
    model = fit_logistic_regression(source, MAX_BYTES, is_mean=False)
    absent = np.setdiff1d(np.arange(SITE.num_ids), source.rows.ids.values)
    assert np.all(model.weights[1 + absent] == 0)


def test_a_sample_of_the_rows_fits_into_the_bytes() -> None:
    model = fit_logistic_regression(draw_rows(5000), 1024 * 100, is_mean=False)
    assert model.num_rows == 1024


@pytest.mark.parametrize("num_rows", [1, 2, 5])
def test_a_few_rows_are_enough(num_rows: int) -> None:
    source = draw_rows(num_rows)
    model = fit_logistic_regression(source, MAX_BYTES, is_mean=False)
    assert np.isfinite(model.predict(source.rows)).all()


def test_rows_of_one_label_are_predicted_to_have_it() -> None:
    source = draw_rows(1000)
    rows = source.rows
    ones = MemoryRows(source.schema, Rows(np.ones_like(rows.labels), rows.dense, rows.ids))
    assert fit_logistic_regression(ones, MAX_BYTES, is_mean=False).predict(rows).min() > 5


def test_rows_without_a_weight_are_an_error() -> None:
    source = draw_rows(100, weighted=True)
    rows = source.rows
    weightless = Rows(rows.labels, rows.dense, rows.ids, np.zeros(100, dtype=np.float32))
    with pytest.raises(ValueError, match="weights of the 100 training rows"):
        fit_logistic_regression(MemoryRows(source.schema, weightless), MAX_BYTES, is_mean=False)
