"""Curves of a learning rate over a run, and its scaling with the batch, as pure functions."""

import math
from typing import Literal

Decay = Literal["polynomial", "cosine", "constant", "wsd"]
NoiseRule = Literal["sqrt", "linear"]
RatioScaling = Literal[NoiseRule, "none", "legw"]
Scaling = Literal[RatioScaling, "noise", "adascale"]

MAX_WARMUP = 0.5
"""Largest share of a run that warm-up takes. LEGW alone would warm up past the end of the run at a large enough
batch."""


def linear_warmup(done: float, length: float) -> float:
    """Return the warm-up factor: it rises from 0 to 1 until `done` of the run reaches `length`, and stays at 1."""
    return min(done / length, 1.0) if length else 1.0


def polynomial(progress: float, power: float) -> float:
    """Return (1 - progress) ** power, which falls from 1 to 0.

    progress: share done of the run after warm-up, within [0, 1].
    """
    return (1.0 - progress) ** power


def cosine(progress: float) -> float:
    """Return half a cosine wave, which falls from 1 to 0 (Loshchilov & Hutter 2017, arXiv 1608.03983, without
    restarts)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def cooldown(progress: float, length: float) -> float:
    """Return a factor that stays at 1, then falls linearly to 0 over the last `length` of the range [0, 1] of
    `progress` (Hägele et al. 2024, arXiv 2405.18392)."""
    return min((1.0 - progress) / length, 1.0)


def scale(batch_ratio: float, scaling: RatioScaling) -> float:
    """Return the factor on the peak rate at `batch_ratio` times the batch for which the rate was chosen."""
    if scaling == "none":
        return 1.0
    return batch_ratio if scaling == "linear" else math.sqrt(batch_ratio)


def scale_by_noise(batch: int, base_batch: int, noise_scale: float, rule: NoiseRule) -> float:
    """Return the factor on the peak rate at a batch, by the noise scale N: as by `rule` far below N, less near it.

    linear: the ratio of 1 / (1 + N/B) at the two batches B, the best rates of SGD (McCandlish et al. 2018, arXiv
    1812.06162, eq. 2.6); constant far above N. sqrt: the ratio of 1 / (sqrt(N/B) + sqrt(B/N)), the best rates of steps
    by the sign of the gradient, and about so of Adam (Li et al. 2024, arXiv 2405.14578, eq. 13); largest at N.
    """
    return scale(batch / base_batch, rule) * ((base_batch + noise_scale) / (batch + noise_scale))


def legw_warmup(length: float, batch_ratio: float) -> float:
    """Return the length of the warm-up at `batch_ratio` times the batch: longer by the same ratio, which may exceed the
    run.

    You et al. 2019, arXiv 1901.08433; LEGW also scales the rate with the square root of the ratio.
    """
    return length * batch_ratio
