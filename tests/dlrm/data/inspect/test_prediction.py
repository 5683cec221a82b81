import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from dlrm.data.inspect.judge.prediction import (
    FoldCounts,
    assign_ranges,
    predict_by_group,
    predict_by_number,
    predict_by_value,
    predict_mean,
)

N = 4000
DRAW = np.random.default_rng(0)
FOLDS = (DRAW.random(N) < 0.5).astype(np.int64)
AGES = DRAW.integers(18, 60, N)
LABELS = DRAW.random(N) < 1.0 / (1.0 + np.exp(2.0 - AGES / 25))
NUMBERS, CODES = np.unique(AGES.astype(np.float64), return_inverse=True)
COUNTS = FoldCounts.count(CODES, len(NUMBERS), LABELS, FOLDS)


def test_the_gain_is_the_difference_of_log_losses_on_rows_not_fitted_on() -> None:
    """Reference: the definition, row by row, at the smoothing that the prediction has chosen."""
    found = predict_by_value(COUNTS)
    losses: dict[float, float] = {}
    means = np.empty(N)
    for strength in (3.0, 30.0, 300.0):
        rates = np.empty(N)
        for fold in (0, 1):
            others = fold != FOLDS
            means[~others] = LABELS[others].mean()
            for age in NUMBERS:
                same = others & (age == AGES)
                rate = (LABELS[same].sum() + strength * LABELS[others].mean()) / (same.sum() + strength)
                rates[~others & (age == AGES)] = rate
        losses[strength] = log_loss(LABELS, rates)
    constant = log_loss(LABELS, means)
    assert found.gain.mean == pytest.approx(constant - min(losses.values()), abs=1e-12)


def test_the_standard_error_is_that_of_the_mean_difference() -> None:
    found, mean = predict_by_value(COUNTS), predict_mean(COUNTS)
    rates, constant = found.rates[FOLDS, CODES], mean.rates[FOLDS, CODES]
    differences = np.where(LABELS, np.log(rates / constant), np.log((1 - rates) / (1 - constant)))
    assert found.gain.standard_error == pytest.approx(differences.std() / np.sqrt(N), rel=1e-9)


def test_the_auc_is_the_mean_of_that_of_both_folds() -> None:
    found = predict_by_value(COUNTS)
    expected = [roc_auc_score(LABELS[fold == FOLDS], found.rates[fold, CODES[fold == FOLDS]]) for fold in (0, 1)]
    assert found.auc == pytest.approx(np.mean(expected), abs=1e-12)


def test_a_number_is_fitted_as_logistic_regression_fits_it() -> None:
    found = predict_by_number(COUNTS, NUMBERS)
    for fold in (0, 1):
        fitted = LogisticRegression(C=1e6).fit(AGES[fold != FOLDS, None], LABELS[fold != FOLDS])
        assert found.rates[fold, :-1] == pytest.approx(fitted.predict_proba(NUMBERS[:, None])[:, 1], abs=1e-3)


@pytest.mark.parametrize("numbers", [[0.0, 1e300], [-1e308, 0.0, 1e308], [1e-300, 2e-300], [5.0, 5.0 + 1e-9]])
def test_numbers_of_any_size_are_fitted(numbers: list[float]) -> None:
    codes = DRAW.integers(0, len(numbers), N)
    counts = FoldCounts.count(codes, len(numbers), codes == 1, FOLDS)
    assert np.isfinite(predict_by_number(counts, np.array(numbers)).rates).all()


def test_ranges_have_about_equally_many_rows() -> None:
    values = np.unique(DRAW.normal(size=N))
    counts = FoldCounts.count(np.arange(len(values)), len(values), LABELS[: len(values)], FOLDS[: len(values)])
    groups = assign_ranges(values, counts, 8)
    assert np.bincount(groups).tolist() == [N // 8] * 8 + [1]
    assert np.all(np.diff(groups) >= 0)


def test_few_values_have_a_range_each() -> None:
    groups = assign_ranges(NUMBERS, COUNTS, 100)
    assert groups.tolist() == list(range(len(NUMBERS) + 1))
    assert predict_by_group(COUNTS, groups).gain == predict_by_value(COUNTS).gain


@pytest.mark.parametrize("num_values", [2, 100, N])
def test_noise_is_never_certain_to_predict(num_values: int) -> None:
    codes = DRAW.permutation(N) if num_values == N else DRAW.integers(0, num_values, N)
    counts = FoldCounts.count(codes, num_values, LABELS, FOLDS)
    for found in (predict_by_value(counts), predict_by_number(counts, np.arange(float(num_values)))):
        assert not found.gain.is_certain


def test_missing_values_have_a_rate_of_their_own() -> None:
    codes = np.where(LABELS, -1, 0)
    counts = FoldCounts.count(codes, 1, LABELS, FOLDS)
    assert predict_by_value(counts).auc == 1.0
    assert predict_by_number(counts, np.array([5.0])).auc == 1.0


def test_a_better_prediction_is_certain_to_be_better() -> None:
    by_value, by_nothing = predict_by_value(COUNTS), predict_mean(COUNTS)
    assert by_value.compare(by_nothing).is_certain
    assert not by_nothing.compare(by_value).is_certain
    assert not by_value.compare(by_value).is_certain
