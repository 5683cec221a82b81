import math

import numpy as np
import pytest

from dlrm.metrics.binary import compute_binary_metrics
from dlrm.metrics.ranking import rank_rows
from dlrm.metrics.standard_error import estimate_auc_standard_error


def compare_pairs(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """For every positive and negative: 1 where the positive has the higher score, 1/2 where both have the same."""
    positives, negatives = scores[labels == 1], scores[labels == 0]
    return (positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives)


def draw(num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = (random.random(num_rows) < 0.3).astype(np.float32)
    return labels, (random.normal(size=num_rows) + labels).round(1).astype(np.float32)


def test_the_standard_error_is_delongs_over_all_pairs() -> None:
    labels, scores = draw(400)
    pairs = compare_pairs(labels, scores)
    variance = pairs.mean(axis=1).var(ddof=1) / pairs.shape[0] + pairs.mean(axis=0).var(ddof=1) / pairs.shape[1]
    assert rank_rows(labels, scores).compute_standard_error() == pytest.approx(math.sqrt(variance), rel=1e-12)


def test_the_standard_error_is_the_spread_of_the_auc_over_many_samples() -> None:
    ranked = [rank_rows(*draw(500, seed)) for seed in range(400)]
    spread = np.std([rows.compute_auc() for rows in ranked])
    assert np.mean([rows.compute_standard_error() for rows in ranked]) == pytest.approx(spread, rel=0.1)


def test_rows_of_equal_weights_have_the_standard_error_of_rows_without() -> None:
    labels, scores = draw(300)
    plain, weighted = rank_rows(labels, scores), rank_rows(labels, scores, np.full(300, 0.37))
    assert weighted.compute_auc() == pytest.approx(plain.compute_auc(), rel=1e-12)
    assert weighted.compute_standard_error() == pytest.approx(plain.compute_standard_error(), rel=1e-12)


def test_the_weighted_standard_error_is_the_spread_of_the_weighted_auc_over_many_samples() -> None:
    aucs, errors = [], []
    for seed in range(400):
        weights = np.random.default_rng(1000 + seed).exponential(size=500)
        ranked = rank_rows(*draw(500, seed), weights)
        aucs.append(ranked.compute_auc())
        errors.append(ranked.compute_standard_error())
    assert np.mean(errors) == pytest.approx(np.std(aucs), rel=0.1)


def test_rows_of_weight_zero_change_nothing() -> None:
    labels, scores = draw(200)
    weights = np.ones(200)
    weights[150:] = 0
    few, all_rows = rank_rows(labels[:150], scores[:150]), rank_rows(labels, scores, weights)
    assert all_rows.compute_standard_error() == pytest.approx(few.compute_standard_error(), rel=1e-12)


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0]])
def test_there_is_no_standard_error_from_one_row_of_a_label(labels: list[int]) -> None:
    metrics = compute_binary_metrics(np.array(labels, dtype=np.float32), np.array([0.1, 0.2, 0.3]))
    assert metrics.auc_standard_error is None


def test_the_estimate_from_numbers_of_rows_is_the_spread_of_the_auc_of_exponential_scores() -> None:
    random, mean = np.random.default_rng(0), 3.0
    labels = np.repeat([1.0, 0.0], [40, 90])
    aucs = [
        rank_rows(labels, np.append(random.exponential(mean, 40), random.exponential(1, 90))).compute_auc()
        for _ in range(2000)
    ]
    # The AUC is the probability that an exponential number of this mean exceeds one of mean 1.
    assert estimate_auc_standard_error(mean / (mean + 1), 40, 90) == pytest.approx(np.std(aucs), rel=0.06)


def test_the_estimate_is_near_the_standard_error_that_is_measured() -> None:
    labels, scores = draw(20_000)
    ranked = rank_rows(labels, scores)
    auc, num_positives = ranked.compute_auc(), int(labels.sum())
    assert auc is not None
    estimate = estimate_auc_standard_error(auc, num_positives, 20_000 - num_positives)
    assert estimate == pytest.approx(ranked.compute_standard_error(), rel=0.1)
