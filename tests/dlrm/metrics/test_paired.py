"""Comparison of models on the same rows, against the definitions over all pairs of rows and against simulation."""

import math

import numpy as np
import pytest

from dlrm.metrics.binary import auc, log_loss
from dlrm.metrics.paired import compare_aucs, compare_log_losses, compute_auc_covariance, measure_log_loss
from dlrm.metrics.ranking import rank_rows


def compare_pairs(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """For every positive and negative: 1 where the positive has the higher score, 1/2 where both have the same."""
    positives, negatives = scores[labels == 1], scores[labels == 0]
    return (positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives)


def compute_covariance_by_definition(labels: np.ndarray, scores: list[np.ndarray]) -> np.ndarray:
    """The matrix S10 / m + S01 / n of DeLong, DeLong and Clarke-Pearson 1988, from all m n pairs."""
    kernels = [compare_pairs(labels, vector) for vector in scores]
    of_positives = np.stack([kernel.mean(axis=1) for kernel in kernels])
    of_negatives = np.stack([kernel.mean(axis=0) for kernel in kernels])
    return np.cov(of_positives) / of_positives.shape[1] + np.cov(of_negatives) / of_negatives.shape[1]


def draw(num_rows: int, seed: int = 0, gain: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels with two scores that have half of their noise in common, the second with another part of the signal."""
    random = np.random.default_rng(seed)
    labels = (random.random(num_rows) < 0.3).astype(np.float32)
    common = random.normal(size=num_rows)
    scores = [(part * labels + common + random.normal(size=num_rows)).astype(np.float32) for part in (1.0, gain)]
    return labels, scores[0], scores[1]


@pytest.mark.parametrize("decimals", [7, 0], ids=["distinct", "tied"])
def test_the_covariance_of_two_aucs_is_delongs_over_all_pairs(decimals: int) -> None:
    labels, *scores = draw(300, gain=1.5)
    scores = [vector.round(decimals) for vector in scores]
    found = compute_auc_covariance(labels, scores)
    assert found is not None
    aucs, covariance = found
    assert aucs == pytest.approx([auc(labels, vector) for vector in scores], rel=1e-12)
    assert covariance == pytest.approx(compute_covariance_by_definition(labels, scores), rel=1e-10)
    own = [rank_rows(labels, vector).compute_standard_error() for vector in scores]
    assert np.sqrt(np.diag(covariance)) == pytest.approx(own, rel=1e-10)


def test_the_difference_of_two_aucs_has_the_variance_of_both_less_twice_their_covariance() -> None:
    labels, first, second = draw(200, gain=2.0)
    difference = compare_aucs(labels, first, second)
    (one, both), (_, other) = compute_covariance_by_definition(labels, [first, second])
    assert difference is not None
    assert difference.value == pytest.approx((auc(labels, first) or 0.0) - (auc(labels, second) or 0.0), rel=1e-12)
    assert difference.standard_error == pytest.approx(math.sqrt(one + other - 2 * both), rel=1e-10)
    backwards = compare_aucs(labels, second, first)
    assert backwards is not None
    assert (backwards.value, backwards.standard_error) == pytest.approx(
        (-difference.value, difference.standard_error), rel=1e-10
    )


def test_models_that_are_equally_good_are_told_apart_in_5_of_100_samples() -> None:
    statistics = []
    for seed in range(1000):
        difference = compare_aucs(*draw(300, seed))
        assert difference is not None
        assert difference.standard_error is not None
        statistics.append(difference.value / difference.standard_error)
    assert np.mean(statistics) == pytest.approx(0.0, abs=0.1)
    assert np.std(statistics) == pytest.approx(1.0, abs=0.07)
    assert np.mean(np.abs(statistics) > 1.96) == pytest.approx(0.05, abs=0.025)


def test_the_standard_error_of_a_difference_of_log_losses_is_its_spread_over_many_samples() -> None:
    found = [compare_log_losses(*draw(300, seed, gain=1.3)) for seed in range(600)]
    errors = [difference.standard_error or 0.0 for difference in found]
    assert np.mean(errors) == pytest.approx(np.std([difference.value for difference in found]), rel=0.1)


def test_a_difference_of_log_losses_is_that_of_the_rows() -> None:
    labels, first, second = (vector.astype(np.float64) for vector in draw(100))
    rows = np.logaddexp(0.0, first) - np.logaddexp(0.0, second) - labels * (first - second)
    difference = compare_log_losses(labels, first, second)
    assert difference.value == pytest.approx(rows.mean(), rel=1e-10)
    assert difference.standard_error == pytest.approx(rows.std(ddof=1) / 10.0, rel=1e-10)
    assert measure_log_loss(labels, first).value == pytest.approx(log_loss(labels, first), rel=1e-12)


def test_weights_that_are_equal_change_nothing_and_others_have_the_spread_of_many_samples() -> None:
    labels, first, second = draw(300, gain=1.3)
    plain, weighted = (compare_aucs(labels, first, second, weights) for weights in (None, np.full(300, 0.37)))
    assert plain is not None
    assert weighted is not None
    assert weighted.value == pytest.approx(plain.value, rel=1e-9)
    assert weighted.standard_error == pytest.approx(plain.standard_error, rel=1e-9)
    found = [
        compare_aucs(*draw(500, seed), np.random.default_rng(1000 + seed).exponential(size=500)) for seed in range(400)
    ]
    values = [difference.value for difference in found if difference]
    errors = [difference.standard_error for difference in found if difference and difference.standard_error]
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.1)


def test_a_model_does_not_differ_from_itself_and_one_label_has_no_auc() -> None:
    labels, first, _ = draw(50)
    difference = compare_aucs(labels, first, first)
    assert difference is not None
    assert (difference.value, difference.standard_error) == (0.0, 0.0)
    assert compare_aucs(np.zeros(50), first, first) is None
    lone = compare_aucs(np.eye(50)[0], first, 2 * first)
    assert lone is not None
    assert lone.standard_error is None
