import math

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlrm.metrics.binary import (
    auc,
    calibration,
    compute_binary_metrics,
    constant_log_loss,
    log_loss,
    normalized_entropy,
)


def logits_of(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.log(probabilities) - np.log1p(-probabilities)


@pytest.fixture(scope="module")
def scored() -> tuple[np.ndarray, np.ndarray]:
    """A million labels and scores, of which only 1,001 are distinct."""
    random = np.random.default_rng(0)
    labels = (random.random(1_000_000) < 0.25).astype(np.float32)
    scores = np.clip(random.normal(0.3 + 0.1 * labels, 0.2), 0, 1).round(3)
    return labels, scores


def test_auc_and_log_loss_are_those_of_scikit_learn_on_a_million_tied_scores(
    scored: tuple[np.ndarray, np.ndarray],
) -> None:
    labels, scores = scored
    assert auc(labels, scores) == pytest.approx(sklearn.metrics.roc_auc_score(labels, scores), abs=1e-12)
    assert log_loss(labels, logits_of(scores)) == pytest.approx(sklearn.metrics.log_loss(labels, scores), rel=1e-12)


def test_float32_logits_are_summed_in_float64(scored: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = scored
    narrow = scores.astype(np.float32)
    assert auc(labels, narrow) == pytest.approx(sklearn.metrics.roc_auc_score(labels, narrow), abs=1e-12)
    logits = np.float32(20) * narrow - np.float32(10)
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert log_loss(labels, logits) == pytest.approx(sklearn.metrics.log_loss(labels, probabilities), rel=1e-12)
    assert calibration(labels, logits) == pytest.approx(probabilities.sum() / labels.sum(dtype=np.float64), rel=1e-12)


def test_logits_whose_float32_probabilities_are_all_1_are_distinguished() -> None:
    logits = np.array([18, 20, 24, 30, 60], dtype=np.float32)
    labels = np.array([0, 0, 1, 0, 1], dtype=np.float32)
    assert np.all(1 / (1 + np.exp(-logits)) == np.float32(1))
    metrics = compute_binary_metrics(labels, logits)
    assert metrics.auc == pytest.approx(5 / 6)
    losses = [math.log1p(math.exp(-z)) + (0 if label else z) for z, label in zip(logits.tolist(), labels, strict=True)]
    assert metrics.log_loss == pytest.approx(math.fsum(losses) / 5, rel=1e-14)
    probabilities = [1 / (1 + math.exp(-z)) for z in logits.tolist()]
    assert metrics.calibration == pytest.approx(math.fsum(probabilities) / 2, rel=1e-14)


def test_logits_whose_float32_probabilities_tie_with_their_neighbours_are_distinguished() -> None:
    """At 15 float32 has four probabilities for these 400 logits."""
    random = np.random.default_rng(2)
    logits = np.linspace(15, 16, 400, dtype=np.float32)
    labels = (random.random(400) < np.linspace(0.2, 0.8, 400)).astype(np.float32)
    won = [p > n for p in logits[labels == 1] for n in logits[labels == 0]]
    assert compute_binary_metrics(labels, logits).auc == pytest.approx(np.mean(won), abs=1e-12)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=40))
def test_auc_is_the_share_of_pairs_won(pairs: list[tuple[bool, int]]) -> None:
    labels = np.array([label for label, _ in pairs], dtype=np.float32)
    scores = np.array([score for _, score in pairs], dtype=np.float64)
    won = [(1.0 if p > n else 0.5 if p == n else 0.0) for p in scores[labels == 1] for n in scores[labels == 0]]
    assert auc(labels, scores) == (pytest.approx(np.mean(won)) if won else None)


def test_one_class_has_no_auc_and_no_entropy_but_a_log_loss() -> None:
    metrics = compute_binary_metrics(np.zeros(4), np.zeros(4))
    assert metrics.auc is None
    assert metrics.normalized_entropy is None
    assert metrics.calibration is None
    assert metrics.log_loss == pytest.approx(math.log(2))
    assert metrics.num_rows == 4


def test_certain_and_wrong_costs_much_but_not_infinitely_much() -> None:
    labels = np.array([1.0, 0.0])
    expected = sklearn.metrics.log_loss(labels, np.array([0.0, 1.0]))
    assert log_loss(labels, np.array([-np.inf, np.inf])) == pytest.approx(expected, rel=1e-12)
    assert log_loss(labels, np.array([-1e30, 1e30], dtype=np.float32)) == pytest.approx(expected, rel=1e-12)
    for rate in (0.0, 1.0):
        constant = sklearn.metrics.log_loss(labels, np.full(2, rate))
        assert constant_log_loss(labels, rate) == pytest.approx(constant, rel=1e-12)


def test_the_constant_predictor_at_the_labels_own_rate_has_entropy_one() -> None:
    labels = np.array([1.0, 0.0, 0.0, 0.0])
    rate = np.full(4, 0.25)
    assert normalized_entropy(labels, logits_of(rate)) == pytest.approx(1)
    assert calibration(labels, logits_of(rate)) == pytest.approx(1)
    assert calibration(labels, logits_of(2 * rate)) == pytest.approx(2)
    assert constant_log_loss(labels, 0.25) == pytest.approx(-(math.log(0.25) + 3 * math.log(0.75)) / 4)
    assert constant_log_loss(labels, 0.4) == pytest.approx(log_loss(labels, logits_of(np.full(4, 0.4))))


def test_weighted_metrics_are_those_of_scikit_learn(scored: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = scored
    random = np.random.default_rng(1)
    weights = (random.exponential(size=len(labels)) * (random.random(len(labels)) < 0.9)).astype(np.float32)
    wide = weights.astype(np.float64)
    expected_auc = sklearn.metrics.roc_auc_score(labels, scores, sample_weight=wide)
    expected_loss = sklearn.metrics.log_loss(labels, scores, sample_weight=wide)
    rate = np.average(labels, weights=wide)
    constant = sklearn.metrics.log_loss(labels, np.full(len(labels), rate), sample_weight=wide)

    metrics = compute_binary_metrics(labels, logits_of(scores), weights)
    assert metrics.num_rows == len(labels)
    assert metrics.auc == pytest.approx(expected_auc, abs=1e-12)
    assert metrics.log_loss == pytest.approx(expected_loss, rel=1e-12)
    assert metrics.normalized_entropy == pytest.approx(expected_loss / constant, rel=1e-12)
    assert metrics.calibration == pytest.approx(np.sum(wide * scores) / np.sum(wide * labels), rel=1e-12)
    assert constant_log_loss(labels, 0.3, weights) == pytest.approx(
        sklearn.metrics.log_loss(labels, np.full(len(labels), 0.3), sample_weight=wide), rel=1e-12
    )


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=40))
def test_a_row_of_weight_k_counts_as_k_rows(rows: list[tuple[bool, int, int]]) -> None:
    labels, scores, weights = (np.array(column) for column in zip(*rows, strict=True))
    repeated = np.repeat(labels, weights).astype(np.float64), np.repeat(scores / 10 + 0.1, weights)
    given_weights = labels.astype(np.float64), scores / 10 + 0.1, weights.astype(np.float32)
    if not weights.any():
        with pytest.raises(ValueError, match="not all 0"):
            compute_binary_metrics(*given_weights)
        return
    expected, found = compute_binary_metrics(*repeated), compute_binary_metrics(*given_weights)
    for name in ("auc", "log_loss", "normalized_entropy", "calibration"):
        value = getattr(expected, name)
        assert getattr(found, name) == (None if value is None else pytest.approx(value, rel=1e-12)), name


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [1.0], [math.nan, 1.0]])
def test_what_are_no_weights_is_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights must"):
        auc(np.array([1.0, 0.0]), np.array([0.5, 0.5]), np.array(weights))


@pytest.mark.parametrize(
    ("labels", "scores"),
    [([1.0, 0.0], [0.5]), ([], []), ([2.0, 0.0], [0.5, 0.5]), ([1.0, 0.0], [math.nan, 0.5])],
)
def test_invalid_predictions_are_refused(labels: list[float], scores: list[float]) -> None:
    with pytest.raises(ValueError, match="must"):
        auc(np.array(labels), np.array(scores))
