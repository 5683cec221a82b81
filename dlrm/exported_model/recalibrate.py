"""Fits a map of a model's logits on validation rows, so that its probabilities agree with the labels."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlrm.exported_model.layout import Recalibration
from dlrm.metrics.true_rates import get_log_share
from dlrm.yardsticks.rows import ScoredRows

MIN_ROWS = 100
"""Validation rows of each label that a map is fitted to at least: with fewer, it often makes the log-loss worse."""
MAX_NEWTON_STEPS, MAX_HALVINGS = 100, 30
TOLERANCE = 1e-12
"""Fall of the mean log-loss below which the search for the linear map ends."""

Vector = NDArray[np.float64]


def fit_recalibration(
    kind: Literal["isotonic", "platt"], rows: ScoredRows, negative_sampling: float | None
) -> Recalibration:
    """Fit the map of corrected logits to rows, as sampled, that the model was not trained on.

    negative_sampling: share of the negatives that the rows hold; None for all of them. Raises ValueError if they have
    fewer than MIN_ROWS of a label, apart from rows of weight 0, if a logit is not finite, or if the line does not rise.
    """
    weights = np.ones(len(rows.labels)) if rows.weights is None else rows.weights.astype(np.float64)
    is_counted = weights > 0
    weights, logits = weights[is_counted], rows.logits[is_counted].astype(np.float64)
    is_positive = rows.labels[is_counted] == 1
    num_rarer = int(min(is_positive.sum(), (~is_positive).sum()))
    if num_rarer < MIN_ROWS:
        counts = f"{num_rarer} of the {len(weights):,} validation rows with a weight have the rarer label"
        raise ValueError(f"{counts} (valid: at least {MIN_ROWS})")
    if not np.isfinite(logits).all():
        raise ValueError("the model overflows on validation rows")
    # Counted in positives, so that the scale of the weights does not matter.
    weights = weights / weights[is_positive].mean()
    num_positives, num_negatives = float(weights[is_positive].sum()), float(weights[~is_positive].sum())
    # Platt's probabilities of a sampled row of each label, after one more row of each: no finite sample shows 0 or 1.
    low, high = 1 / (num_negatives + 2), (num_positives + 1) / (num_positives + 2)
    shift = get_log_share(negative_sampling)
    if kind == "platt":
        # Each row is that share of a positive, and for the rest a negative, which counts 1 / w times.
        targets = np.where(is_positive, high, low)
        positives, negatives = weights * targets, weights * (1 - targets) * np.exp(-shift)
        totals = positives + negatives
        slope, offset = _fit_line(logits + shift, positives / totals, totals / totals.sum())
        if slope <= 0:
            raise ValueError(f"the slope of the best line is {slope:.4f}, which turns the order round (valid: above 0)")
        return Recalibration(kind=kind, slope=slope, offset=offset)
    before, rates = _fit_steps(logits, is_positive, weights)
    bounded = np.clip(rates, low, high)
    after = np.log(bounded / (1 - bounded)) + shift
    return Recalibration(kind=kind, before=(before + shift).tolist(), after=after.tolist())


def _fit_line(logits: Vector, targets: Vector, weights: Vector) -> tuple[float, float]:
    """Find slope and offset of the smallest mean log-loss by Newton's method, each step halved until the loss falls.

    Platt, "Probabilistic outputs for support vector machines", 1999, of a logit. weights: sum to 1.
    """
    inputs = np.stack([logits, np.ones_like(logits)])

    def compute_loss(line: NDArray[np.floating]) -> float:
        mapped = line @ inputs
        return float(weights @ (np.logaddexp(0, mapped) - targets * mapped))

    line: Vector = np.array([1.0, 0.0])
    loss = compute_loss(line)
    for _ in range(MAX_NEWTON_STEPS):
        probabilities = 0.5 * (1 + np.tanh(0.5 * (line @ inputs)))
        gradient = inputs @ (weights * (probabilities - targets))
        hessian = (inputs * (weights * probabilities * (1 - probabilities))) @ inputs.T
        # By least squares: where all logits are the same, the slope is of no effect.
        step = -np.linalg.lstsq(hessian, gradient)[0]
        moved, moved_loss = line, loss
        for halvings in range(MAX_HALVINGS):
            moved = line + 0.5**halvings * step
            moved_loss = compute_loss(moved)
            if moved_loss <= loss:
                break
        else:
            break
        is_done = loss - moved_loss <= TOLERANCE
        line, loss = moved, moved_loss
        if is_done:
            break
    return float(line[0]), float(line[1])


def _fit_steps(logits: Vector, is_positive: NDArray[np.bool_], weights: Vector) -> tuple[Vector, Vector]:
    """Find the rates of positives that rise with the logit and have the smallest squared error.

    Adjacent blocks whose rates do not rise are pooled, all of a run at once, until all rise (Ayer et al. 1955; Zadrozny
    and Elkan 2002). Returns the first and last logit of each block, ascending, and the rate at each.
    """
    distinct, numbers = np.unique(logits, return_inverse=True)
    totals = np.bincount(numbers, weights)
    positives = np.bincount(numbers, weights * is_positive)
    starts = np.arange(len(distinct))
    while True:
        rates = positives / totals
        kept = np.flatnonzero(np.append(True, rates[1:] > rates[:-1]))
        if len(kept) == len(rates):
            break
        starts, positives, totals = starts[kept], np.add.reduceat(positives, kept), np.add.reduceat(totals, kept)
    ends = np.append(starts[1:], len(distinct)) - 1
    return np.stack([distinct[starts], distinct[ends]], axis=1).reshape(-1), np.repeat(rates, 2)
