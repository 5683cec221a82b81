"""Successive halving (Jamieson & Talwalkar 2016, arXiv 1502.07943), with the rungs of a bracket of Hyperband (Li et al.
2018, JMLR 18): of n trials with 1/9 of the job's epochs the best third goes on to 1/3 of them, and the best third of
these trials to all.

A trial starts anew on every rung, since the learning-rate schedule of a run depends on its length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ETA = 3
"""Ratio of the lengths of two rungs, and of the numbers of trials on them."""
MAX_RUNGS = 3
"""Largest number of rungs: runs of less than a ninth of the job say little about the whole one."""

MIN_STEPS = 50
"""Least number of steps of the shortest runs: in fewer, the fastest learner wins whatever it reaches in the end."""


@dataclass(frozen=True)
class Rung:
    """One length of runs."""

    number: int
    """Number of the rung, from 0, which has the shortest runs."""
    fraction: float
    """Share of the job's epochs."""


def list_rungs(num_trials: int, num_steps: int) -> list[Rung]:
    """List the rungs, shortest runs first.

    num_trials: trials of the first rung; there are at most floor(log_3 n) + 1 rungs, so that a third of each is left
    for the next. num_steps: steps of a run of the whole length; the shortest runs need MIN_STEPS.
    """
    num_rungs = 1
    while num_rungs < MAX_RUNGS and ETA**num_rungs <= num_trials and num_steps >= MIN_STEPS * ETA**num_rungs:
        num_rungs += 1
    return [Rung(number, ETA ** -(num_rungs - 1.0 - number)) for number in range(num_rungs)]


def count_survivors(num_trials: int) -> int:
    """Count the trials that go on after a rung with so many of them: a third, but at least one."""
    return max(1, num_trials // ETA)


def choose_survivors(losses: Mapping[int, float], num_run: int) -> list[int]:
    """Choose the trials that go on, best first.

    losses: validation log-loss of the trials of the rung that succeeded, by number. num_run: all trials of the rung.
    """
    return sorted(losses, key=lambda trial: (losses[trial], trial))[: count_survivors(num_run)]


def estimate_seconds(fraction: float, measured: Mapping[float, Sequence[float]]) -> float:
    """Estimate the seconds of a run with this share of the epochs.

    measured: seconds of finished runs, by their share; runs of the whole length are among them. A run takes as long as
    others of its share; else a constant time and one in proportion to its share, by the shortest and the longest
    finished runs.
    """
    means = {share: sum(seconds) / len(seconds) for share, seconds in measured.items()}
    if fraction in means:
        return means[fraction]
    shortest = min(means)
    if shortest == 1.0:
        return fraction * means[1.0]
    slope = (means[1.0] - means[shortest]) / (1.0 - shortest)
    return means[shortest] + slope * (fraction - shortest)


def estimate_rest(num_run: int, rung: Rung, rungs: Sequence[Rung], measured: Mapping[float, Sequence[float]]) -> float:
    """Estimate the seconds of one more trial on `rung` beside `num_run`, and of all runs that then follow."""
    seconds = estimate_seconds(rung.fraction, measured)
    num_trials = num_run + 1
    for later in rungs[rung.number + 1 :]:
        num_trials = count_survivors(num_trials)
        seconds += num_trials * estimate_seconds(later.fraction, measured)
    return seconds
