"""Figures at true rates, of rows that hold all positives and a share w of the negatives, drawn at random.

He et al., "Practical lessons from predicting clicks on ads at Facebook", 2014, section 6.3: a probability q among these
rows becomes q / (q + (1 - q) / w), which adds ln w to its logit. A share of None stands for rows as they occur.
"""

import math

import numpy as np

from dlrm.metrics.ranking import Vector


def get_log_share(share: float | None) -> float:
    """Return ln w, which makes the logit of a true rate of one among the sampled rows; 0 for rows as they occur."""
    return 0.0 if share is None else math.log(share)


def correct_rate(rate: float, share: float | None) -> float:
    """Compute the true rate of positives from their rate among the sampled rows."""
    return rate if share is None else rate / (rate + (1 - rate) / share)


def weigh_negatives(labels: Vector, weights: Vector | None, share: float | None) -> Vector | None:
    """Compute the weights [n] of the rows with which each negative counts 1 / w times.

    weights: [n] weights of the rows apart from that; None if all have the same. The result is `weights` itself for rows
    as they occur.
    """
    if share is None or share == 1.0:
        return weights
    factors = np.where(labels == 1, np.float32(1.0), np.float32(1.0 / share))
    return factors if weights is None else weights * factors
