"""Maps of logits that validation rows ask for, against scikit-learn and the conditions of the best line."""

from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from dlrm.exported_model.assemble import make_output_map
from dlrm.exported_model.recalibrate import fit_recalibration
from dlrm.yardsticks.rows import ScoredRows

SHARES = {"equal": None, "weighted": None, "sampled": 0.2}
WEIGHTINGS = list(SHARES)
Kind = Literal["isotonic", "platt"]


def draw_rows(weighting: str, num_rows: int = 3000, num_logits: int | None = None) -> ScoredRows:
    """Rows whose true logit is 1.5 z - 2 for the logit z."""
    random = np.random.default_rng(5)
    logits = random.normal(size=num_rows) if num_logits is None else random.integers(0, num_logits, num_rows) / 3.0
    labels = (random.random(num_rows) < 1 / (1 + np.exp(2 - 1.5 * logits))).astype(np.float32)
    weights = random.random(num_rows).astype(np.float32) if weighting == "weighted" else None
    return ScoredRows(labels, logits, weights)


def scale_weights(rows: ScoredRows) -> tuple[NDArray[Any], float, float]:
    """Weights in positives, and Platt's probabilities of a row of each label."""
    weights = np.ones(len(rows.labels)) if rows.weights is None else rows.weights.astype(np.float64)
    weights = weights / weights[rows.labels == 1].mean()
    num_positives, num_negatives = weights[rows.labels == 1].sum(), weights[rows.labels == 0].sum()
    return weights, 1 / (num_negatives + 2), (num_positives + 1) / (num_positives + 2)


def apply(kind: Kind, rows: ScoredRows, logits: NDArray[Any], share: float | None = None) -> NDArray[Any]:
    """Logits of corrected probabilities for the logits of a model of sampled rows."""
    output_map = make_output_map(share, fit_recalibration(kind, rows, share))
    assert output_map is not None
    return output_map(torch.from_numpy(logits)).numpy()


@pytest.mark.parametrize("num_logits", [None, 12, 1])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_isotonic_is_that_of_scikit_learn_between_the_bounds_of_platt(weighting: str, num_logits: int | None) -> None:
    rows = draw_rows(weighting, num_logits=num_logits)
    weights, low, high = scale_weights(rows)
    expected = IsotonicRegression(y_min=low, y_max=high, out_of_bounds="clip")
    expected.fit(rows.logits, rows.labels, sample_weight=weights)
    share = SHARES[weighting]
    probabilities = 1 / (1 + np.exp(-apply("isotonic", rows, rows.logits, share)))
    sampled = expected.predict(rows.logits)
    np.testing.assert_allclose(probabilities, sampled / (sampled + (1 - sampled) / (share or 1.0)), rtol=1e-5)
    outside = np.array([-1e9, rows.logits.min() - 1, rows.logits.max() + 1, 1e9])
    ends = apply("isotonic", rows, outside, share)
    assert ends[0] == ends[1] <= ends[2] == ends[3]
    others = np.sort(np.random.default_rng(0).normal(size=500) * 3)
    assert (np.diff(apply("isotonic", rows, others, share)) >= 0).all()


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_platt_is_the_line_at_which_the_gradient_of_the_log_loss_is_zero(weighting: str) -> None:
    rows, share = draw_rows(weighting), SHARES[weighting]
    weights, low, high = scale_weights(rows)
    found = fit_recalibration("platt", rows, share)
    corrected = rows.logits + np.log(share or 1.0)
    probabilities = 1 / (1 + np.exp(-(found.slope * corrected + found.offset)))
    targets = np.where(rows.labels == 1, high, low)
    # A sampled row is a positive with its target, otherwise a negative, which stands for 1 / w of them.
    errors = weights * ((1 - targets) * probabilities / (share or 1.0) - targets * (1 - probabilities)) / weights.sum()
    assert [errors.sum(), errors @ corrected] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert found.slope == pytest.approx(1.5, abs=0.2)
    expected = found.slope * corrected + found.offset
    np.testing.assert_allclose(apply("platt", rows, rows.logits, share), expected, rtol=1e-12)


def test_rows_above_every_sampled_negative_have_the_rate_that_one_more_row_of_each_label_gives() -> None:
    # 10,000 rows as a share w of 0.01 leaves them; 180 positives alone have the greatest logit.
    labels = np.zeros(10_000, np.float32)
    labels[:300] = 1
    logits = np.where(np.arange(10_000) < 180, 3.0, 0.0)
    (top,) = apply("isotonic", ScoredRows(labels, logits, None), np.array([3.0]), 0.01)
    rows = 300 + 1, 1 / 0.01
    assert 1 / (1 + np.exp(-top)) == pytest.approx(rows[0] / sum(rows))


@pytest.mark.parametrize("kind", ["isotonic", "platt"])
def test_the_scale_of_weights_does_not_matter_and_rows_without_weight_do_not_count(kind: Kind) -> None:
    rows = draw_rows("weighted")
    assert rows.weights is not None
    added = ScoredRows(
        np.append(rows.labels, 1).astype(np.float32),
        np.append(rows.logits, np.inf),
        np.append(100 * rows.weights, 0).astype(np.float32),
    )
    one, other = (fit_recalibration(kind, scored, None) for scored in (rows, added))
    assert (one.slope, one.offset) == pytest.approx((other.slope, other.offset), rel=1e-6)
    assert one.after == pytest.approx(other.after, rel=1e-5)


def test_a_model_that_overflows_stays_undefined_after_the_map() -> None:
    assert np.isnan(apply("isotonic", draw_rows("equal"), np.array([np.nan, 0.0]))).tolist() == [True, False]


@pytest.mark.parametrize(("change", "message"), [("label", "^99 of the .* the rarer label"), ("logit", "overflows")])
def test_rows_that_show_too_little_are_refused(change: str, message: str) -> None:
    rows = draw_rows("equal")
    labels = (np.arange(len(rows.labels)) < 99).astype(np.float32) if change == "label" else rows.labels
    logits = np.full_like(rows.logits, np.nan) if change == "logit" else rows.logits
    with pytest.raises(ValueError, match=message):
        fit_recalibration("isotonic", ScoredRows(labels, logits, None), None)


def test_a_hundred_rows_of_the_rarer_label_are_enough() -> None:
    rows = draw_rows("equal")
    labels = (np.arange(len(rows.labels)) < 100).astype(np.float32)
    assert fit_recalibration("isotonic", ScoredRows(labels, rows.logits, None), None).after


def test_a_line_that_turns_the_order_round_is_refused() -> None:
    rows = draw_rows("equal")
    with pytest.raises(ValueError, match=r"slope of the best line is -1\.[0-9]+"):
        fit_recalibration("platt", ScoredRows(rows.labels, -rows.logits, None), None)
