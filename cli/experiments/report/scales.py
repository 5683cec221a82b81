"""Scales of plots: places and labels of numbers along an axis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

MAX_TICKS = 7
_PADDING = 0.06
"""Share of an axis that is left free at each end."""


@dataclass(frozen=True)
class Scale:
    """Scale from numbers to shares of an axis, 0 at its beginning and 1 at its end."""

    low: float
    high: float
    """End of the axis; as `low` a logarithm on a logarithmic scale."""
    is_log: bool
    ticks: Sequence[tuple[float, str]]
    """Numbers with a label, ascending."""

    def place(self, value: float) -> float:
        """Place a number on the axis."""
        return ((math.log(value) if self.is_log else value) - self.low) / (self.high - self.low)


def make_batch_scale(batches: Sequence[float]) -> Scale:
    """Make a logarithmic scale whose labels are the batches themselves, or every second or third of them."""
    distinct = sorted(set(batches))
    stride = -(-len(distinct) // MAX_TICKS)
    return _make_scale(distinct, is_log=True, ticks=[(value, f"{value:,.0f}") for value in distinct[::stride]])


def make_log_scale(values: Sequence[float]) -> Scale:
    """Make a logarithmic scale with labels at 1, 2 and 5 times powers of ten, or at those alone."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        all_ticks = [step * 10.0**power for power in range(low - 1, high + 1) for step in steps]
        ticks = [tick for tick in all_ticks if 0.8 * min(values) <= tick <= 1.25 * max(values)]
        if len(ticks) <= MAX_TICKS:
            break
    else:
        ticks = ticks[:: -(-len(ticks) // MAX_TICKS)]
    if len(ticks) < 2:
        ticks = sorted({min(values), max(values)})
    return _make_scale([*values, *ticks], is_log=True, ticks=[(tick, format_short(tick)) for tick in ticks])


def make_linear_scale(values: Sequence[float]) -> Scale:
    """Make a linear scale with round labels."""
    low, high = min(values), max(values)
    if high <= low:
        low, high = low - 0.5 * (abs(low) or 1.0) * 0.01, high + 0.5 * (abs(high) or 1.0) * 0.01
    step = _round_step((high - low) / (MAX_TICKS - 2))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = [(number * step, f"{number * step:.{decimals}f}") for number in range(first, last + 1)]
    return _make_scale([low, high], is_log=False, ticks=ticks)


def make_count_scale(values: Sequence[float]) -> Scale:
    """Make a linear scale of large whole numbers, with short labels."""
    scale = make_linear_scale(values)
    return replace(scale, ticks=[(value, format_short(value)) for value, _ in scale.ticks])


def format_short(value: float) -> str:
    """Format a number in few letters: 5000, 20k, 1.5M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 10.0 * unit or (unit > 1e3 and value >= unit):
            return f"{value / unit:.3g}{letter}"
    return f"{value:.0f}" if value >= 10.0 else f"{value:.3g}"


def _make_scale(values: Sequence[float], *, is_log: bool, ticks: Sequence[tuple[float, str]]) -> Scale:
    ends = [math.log(value) if is_log else value for value in (min(values), max(values))]
    padding = _PADDING * (ends[1] - ends[0]) or 0.5
    return Scale(ends[0] - padding, ends[1] + padding, is_log, ticks)


def _round_step(step: float) -> float:
    """Return the least of 1, 2 and 5 times a power of ten that is not below `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= step * (1.0 - 1e-9))
