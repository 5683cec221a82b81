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

WEIGHTINGS = ["equal", "weighted", "sampled"]
Kind = Literal["isotonic", "platt"]


def draw_rows(weighting: str, num_rows: int = 3000, num_logits: int | None = None) -> ScoredRows:
    """Rows whose true logit is 1.5 z - 2 for the logit z."""
    random = np.random.default_rng(5)
    logits = random.normal(size=num_rows) if num_logits is None else random.integers(0, num_logits, num_rows) / 3.0
    labels = (random.random(num_rows) < 1 / (1 + np.exp(2 - 1.5 * logits))).astype(np.float32)
    weights = random.random(num_rows).astype(np.float32) if weighting == "weighted" else None
    return ScoredRows(labels, logits, weights).correct(0.2 if weighting == "sampled" else None)


def scale_weights(rows: ScoredRows) -> tuple[NDArray[Any], float, float]:
    """Weights in positives, and Platt's probabilities of a row of each label."""
    weights = np.ones(len(rows.labels)) if rows.weights is None else rows.weights.astype(np.float64)
    weights = weights / weights[rows.labels == 1].mean()
    num_positives, num_negatives = weights[rows.labels == 1].sum(), weights[rows.labels == 0].sum()
    return weights, 1 / (num_negatives + 2), (num_positives + 1) / (num_positives + 2)


def apply(kind: Kind, rows: ScoredRows, logits: NDArray[Any]) -> NDArray[Any]:
    output_map = make_output_map(None, fit_recalibration(kind, rows))
    assert output_map is not None
    return output_map(torch.from_numpy(logits)).numpy()


@pytest.mark.parametrize("num_logits", [None, 12, 1])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_isotonic_is_that_of_scikit_learn_between_the_bounds_of_platt(weighting: str, num_logits: int | None) -> None:
    rows = draw_rows(weighting, num_logits=num_logits)
    weights, low, high = scale_weights(rows)
    expected = IsotonicRegression(y_min=low, y_max=high, out_of_bounds="clip")
    expected.fit(rows.logits, rows.labels, sample_weight=weights)
    probabilities = 1 / (1 + np.exp(-apply("isotonic", rows, rows.logits)))
    np.testing.assert_allclose(probabilities, expected.predict(rows.logits), rtol=1e-5)
    outside = np.array([-1e9, rows.logits.min() - 1, rows.logits.max() + 1, 1e9])
    ends = apply("isotonic", rows, outside)
    assert ends[0] == ends[1] <= ends[2] == ends[3]
    others = np.sort(np.random.default_rng(0).normal(size=500) * 3)
    assert (np.diff(apply("isotonic", rows, others)) >= 0).all()


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_platt_is_the_line_at_which_the_gradient_of_the_log_loss_is_zero(weighting: str) -> None:
    rows = draw_rows(weighting)
    weights, low, high = scale_weights(rows)
    found = fit_recalibration("platt", rows)
    probabilities = 1 / (1 + np.exp(-(found.slope * rows.logits + found.offset)))
    errors = weights * (probabilities - np.where(rows.labels == 1, high, low)) / weights.sum()
    assert [errors.sum(), errors @ rows.logits] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert found.slope == pytest.approx(1.5, abs=0.2)
    np.testing.assert_allclose(apply("platt", rows, rows.logits), found.slope * rows.logits + found.offset, rtol=1e-12)


@pytest.mark.parametrize("kind", ["isotonic", "platt"])
def test_the_scale_of_weights_does_not_matter_and_rows_without_weight_do_not_count(kind: Kind) -> None:
    rows = draw_rows("weighted")
    assert rows.weights is not None
    added = ScoredRows(
        np.append(rows.labels, 1).astype(np.float32),
        np.append(rows.logits, np.inf),
        np.append(100 * rows.weights, 0).astype(np.float32),
    )
    one, other = (fit_recalibration(kind, scored) for scored in (rows, added))
    assert (one.slope, one.offset) == pytest.approx((other.slope, other.offset), rel=1e-6)
    assert one.after == pytest.approx(other.after, rel=1e-5)


def test_a_model_that_overflows_stays_undefined_after_the_map() -> None:
    assert np.isnan(apply("isotonic", draw_rows("equal"), np.array([np.nan, 0.0]))).tolist() == [True, False]


@pytest.mark.parametrize(("change", "message"), [("label", "have one label only"), ("logit", "overflows")])
def test_rows_that_show_nothing_are_refused(change: str, message: str) -> None:
    rows = draw_rows("equal")
    labels = np.zeros_like(rows.labels) if change == "label" else rows.labels
    logits = np.full_like(rows.logits, np.nan) if change == "logit" else rows.logits
    with pytest.raises(ValueError, match=message):
        fit_recalibration("isotonic", ScoredRows(labels, logits, None))
