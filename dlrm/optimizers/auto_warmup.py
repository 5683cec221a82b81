"""AutoWU (Kim et al. 2021, arXiv 2107.05855): decides by the training loss when a warm-up ends, and at which rate."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from dlrm.config import AutoWarmupConfig
from sharding.comm.collectives import broadcast_from_rank0
from sharding.comm.process_groups import Ranks

Floats = NDArray[np.float64]

NUM_MEANS = 100
"""Mean losses that a whole warm-up is cut into."""
MEANS_PER_TEST = 2
MIN_MEANS = 10
"""Mean losses before the first test."""
NUM_POINTS = 500
"""Points at which the smoothed loss is looked at."""
LENGTH_SCALE = 0.2
"""Length scale of the Gaussian process, as a share of the warm-up so far."""
NOISE_RATIOS = np.logspace(-4, 4, 81)
"""Variances of the noise to choose from, as multiples of the variance of the smoothed loss."""


class WarmupState(BaseModel):
    """State of a warm-up: the losses so far, and its decision; a part of the progress of a run."""

    model_config = ConfigDict(extra="forbid")

    sums: list[float] = [0.0] * NUM_MEANS
    """Sums of the losses of the steps in each part of the warm-up."""
    counts: list[int] = [0] * NUM_MEANS
    num_tested: int = 0
    """Parts of the warm-up that the last test knew."""
    num_votes: int = 0
    """Tests in a row, up to the last one, by which the least loss lies in the past."""
    ended_at: int | None = None
    """Number of valid rows consumed where the warm-up ended; None while it goes on."""
    rate: float | None = None
    """Learning rate from which the decay begins."""


@dataclass(frozen=True)
class AutoWarmup:
    """The warm-up of one run."""

    config: AutoWarmupConfig
    state: WarmupState
    num_run_rows: int
    ranks: Ranks
    tell: Callable[[WarmupState], None] = lambda _: None
    """Function to call where the warm-up ends."""

    def compute_rate(self, num_samples: int) -> float:
        """Compute the rate of a step of the warm-up. num_samples: rows consumed before it."""
        return self.config.rise(num_samples / self.num_run_rows)

    def observe(self, loss: float, num_samples: int) -> None:
        """Take in the loss of a step, the same on every rank, and test for the end if that is due. Collective.

        num_samples: rows consumed before the step. A loss that is not finite counts for nothing.
        """
        state = self.state
        if state.ended_at is not None:
            return
        done = num_samples / self.num_run_rows / self.config.max_fraction
        if done >= 1.0:
            self._end(num_samples, self.config.last_rate)
            return
        part = int(done * NUM_MEANS)
        if part >= state.num_tested + MEANS_PER_TEST and np.count_nonzero(state.counts) >= MIN_MEANS:
            state.num_tested = part
            self._test(num_samples)
            if state.ended_at is not None:
                return
        if math.isfinite(loss):
            state.sums[part] += loss
            state.counts[part] += 1

    def _test(self, num_samples: int) -> None:
        """Test whether the least loss lies in the past, and end the warm-up after enough tests in a row."""
        state = self.state
        fractions, losses = self._list_means()
        curve = smooth(fractions / fractions[-1], losses)
        state.num_votes = state.num_votes + 1 if curve.compute_past_probability() > self.config.confidence else 0
        rate = self.config.rise(curve.find_least() * fractions[-1])
        # Machines may round in other ways: what the first rank decides holds for all.
        state.num_votes, rate = broadcast_from_rank0(self.ranks, (state.num_votes, rate))
        if state.num_votes >= self.config.patience:
            self._end(num_samples, rate)

    def _list_means(self) -> tuple[Floats, Floats]:
        """List the mean losses, and the middle of each part as a fraction of the run."""
        counts = np.array(self.state.counts)
        seen = counts > 0
        width = self.config.max_fraction / NUM_MEANS
        middles = (np.flatnonzero(seen) + 0.5) * width
        return middles.astype(np.float64), np.array(self.state.sums)[seen] / counts[seen]

    def _end(self, num_samples: int, rate: float) -> None:
        self.state.ended_at, self.state.rate = num_samples, rate
        self.tell(self.state)


@dataclass(frozen=True)
class SmoothedCurve:
    """Values of a Gaussian process at points of [0, 1], given noisy ones."""

    points: Floats
    """[k]"""
    mean: Floats
    """[k]"""
    covariance: Floats
    """[k, k]"""

    def find_least(self) -> float:
        """Return the point with the least mean."""
        return float(self.points[self.mean.argmin()])

    def compute_past_probability(self) -> float:
        """Compute the largest probability, over all points before the last one, that the value there is below the last.

        The difference of two values is normal, with variance v_i + v_k - 2 c_ik.
        """
        variances = self.covariance.diagonal()
        spread = np.sqrt(np.maximum(variances[:-1] + variances[-1] - 2 * self.covariance[:-1, -1], 1e-300))
        return float(max(0.5 * math.erfc(-z / math.sqrt(2)) for z in (self.mean[-1] - self.mean[:-1]) / spread))


def smooth(points: Floats, values: Floats) -> SmoothedCurve:
    """Fit a curve to `values` at `points` of [0, 1]: a Gaussian process of length scale LENGTH_SCALE about their mean.

    The variances of process and noise have the largest marginal likelihood. With the eigenvalues l of the kernel, the
    values z in its eigenvectors, and the ratio r of noise to process, the best variance of the process is the mean of
    z^2 / (l + r), which leaves r alone to be tried (Rasmussen and Williams 2006, section 5.4.1).
    """
    center = values.mean()
    kernel = _compute_kernel(points, points)
    eigenvalues, vectors = np.linalg.eigh(kernel)
    z = vectors.T @ (values - center)
    damped = np.maximum(eigenvalues, 0.0)[:, None] + NOISE_RATIOS  # [n, ratios]
    variances = np.maximum((z[:, None] ** 2 / damped).mean(axis=0), 1e-300)
    best = int((len(values) * np.log(variances) + np.log(damped).sum(axis=0)).argmin())
    grid = np.linspace(0.0, 1.0, NUM_POINTS)
    between = _compute_kernel(grid, points) @ vectors
    mean = center + between @ (z / damped[:, best])
    covariance = _compute_kernel(grid, grid) - between / damped[:, best] @ between.T
    return SmoothedCurve(grid, mean, variances[best] * covariance)


def _compute_kernel(one: Floats, other: Floats) -> Floats:
    return np.exp(-0.5 * ((one[:, None] - other) / LENGTH_SCALE) ** 2)
