"""Numbers in the sentences of advice, and the values that it rounds."""

import math
from datetime import datetime

MINUTE, HOUR = 60, 3600
MEMORY_UNIT = 2**28
"""Unit of the memory that is advised."""


def format_samples(value: float) -> str:
    """Format a number of samples or steps with three significant digits: 31,200, or 4.5."""
    return f"{value:.3g}" if value < 100 else f"{float(f'{value:.3g}'):,.0f}"


def format_number(value: float) -> str:
    """Format a number as people write it: 0.0067, 2.5 or 1,000,000; with an exponent above a million."""
    return f"{value:,.10g}" if abs(value) <= 1_000_000 else f"{value:.3g}"


def format_times(value: float) -> str:
    """Format a factor: 14, 3.1 or 0.25."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def format_share(value: float) -> str:
    """Format a share of one as percent: 40 %, or 0.4 %."""
    return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


def format_seconds(value: float) -> str:
    """Format seconds: 0.21 s, 42 s, 3 min, 2 h 10 min."""
    if value < MINUTE:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    if value < HOUR:
        return f"{value / MINUTE:.0f} min"
    hours, rest = divmod(round(value / MINUTE), 60)
    return f"{hours:,} h {rest:02} min"


def format_memory(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.3g} GiB"


def format_clock(time: datetime) -> str:
    return f"{time:%H:%M} UTC"


def round_memory(num_bytes: float) -> int:
    """Round memory up to a whole MEMORY_UNIT."""
    return math.ceil(num_bytes / MEMORY_UNIT) * MEMORY_UNIT


def round_rate(value: float) -> float:
    """Round a learning rate to two significant digits."""
    return float(f"{value:.2g}")
