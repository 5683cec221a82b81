"""Figures at true rates, against the figures of rows that repeat each negative 1 / w times."""

import numpy as np
import pytest

from dlrm.metrics.binary import compute_binary_metrics
from dlrm.metrics.true_rates import correct_rate, get_log_share, weigh_negatives


def test_weighted_figures_are_those_of_rows_with_all_negatives() -> None:
    random = np.random.default_rng(0)
    labels = (random.random(400) < 0.4).astype(np.float32)
    logits = random.normal(size=400) + labels
    copies = np.where(labels == 1, 1, 5)
    corrected = logits + get_log_share(0.2)
    probabilities = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(
        1 / (1 + np.exp(-corrected)), probabilities / (probabilities + (1 - probabilities) / 0.2), rtol=1e-12
    )
    found = compute_binary_metrics(labels, corrected, weigh_negatives(labels, None, 0.2))
    whole = compute_binary_metrics(np.repeat(labels, copies), np.repeat(corrected, copies))
    sampled = compute_binary_metrics(labels, logits)
    assert correct_rate(float(labels.mean()), 0.2) == pytest.approx(np.repeat(labels, copies).mean(), rel=1e-6)
    for name in ("auc", "log_loss", "normalized_entropy", "calibration"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name), rel=1e-6)
    # Weights of a label that are all the same change neither an AUC nor its standard error.
    assert (found.auc, found.auc_standard_error) == pytest.approx((sampled.auc, sampled.auc_standard_error), rel=1e-9)


def test_row_weights_are_multiplied_and_a_share_of_one_changes_nothing() -> None:
    labels, weights = np.array([1, 0, 0], np.float32), np.array([3, 2, 0.5], np.float32)
    np.testing.assert_allclose(weigh_negatives(labels, weights, 0.25), [3, 8, 2])
    for share in (None, 1.0):
        assert weigh_negatives(labels, weights, share) is weights
        assert get_log_share(share) == 0.0
        assert correct_rate(0.3, share) == pytest.approx(0.3)
