"""Shapes of a learning rate over a run, and how it follows the batch: pure functions."""

import math
from typing import Literal

Decay = Literal["polynomial", "cosine", "constant", "wsd"]
Scaling = Literal["none", "sqrt", "linear", "legw"]

MOST_WARMUP = 0.5
"""Share of a run. LEGW would warm up beyond the end of it where a batch is large enough."""


def linear_warmup(done: float, length: float) -> float:
    """Rises from 0 to 1 where `done` of the run reaches `length`, and stays there."""
    return min(done / length, 1.0) if length else 1.0


def polynomial(progress: float, power: float) -> float:
    """Falls from 1 to 0 as (1 - progress) ** power. progress: of the run behind the warm-up, within [0, 1]."""
    return (1.0 - progress) ** power


def cosine(progress: float) -> float:
    """Falls from 1 to 0 along half a wave (Loshchilov & Hutter 2017, arXiv 1608.03983, without restarts)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def cooldown(progress: float, length: float) -> float:
    """Stays at 1, then falls linearly to 0 over the last `length` of what `progress` runs through (Hägele et al. 2024,
    arXiv 2405.18392)."""
    return min((1.0 - progress) / length, 1.0)


def scale(batch_ratio: float, scaling: Scaling) -> float:
    """Factor on the peak rate at `batch_ratio` times the batch that it was chosen for."""
    if scaling == "none":
        return 1.0
    return batch_ratio if scaling == "linear" else math.sqrt(batch_ratio)


def legw_warmup(length: float, batch_ratio: float) -> float:
    """Length of the warm-up at `batch_ratio` times the batch: as much longer, which may be longer than the run.

    You et al. 2019, arXiv 1901.08433; its rate grows with the square root of the ratio.
    """
    return length * batch_ratio
