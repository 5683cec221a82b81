"""Settings of the methods of a sweep: the products of its grids."""

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

from cli.experiments.sweep.config import SweepConfig
from cli.experiments.trials.fields import Settings


def count_settings(sweep: SweepConfig, method: str) -> int:
    """Count the settings that are tried of a method, at each combination of the compared values."""
    return math.prod(len(values) for values in get_grid(sweep, method).values())


def list_settings(sweep: SweepConfig, method: str) -> list[Settings]:
    """List the settings that are tried of a method: every combination of its values."""
    return _multiply(get_grid(sweep, method))


def list_compared(sweep: SweepConfig) -> list[Settings]:
    """List the combinations of the compared values, each of which is a column of its own."""
    return _multiply({field: sweep.grid[field] for field in sweep.compare})


def get_grid(sweep: SweepConfig, method: str) -> dict[str, list[Any]]:
    """Return the values that are tried of a method, by field, without those that are compared."""
    common = {field: values for field, values in sweep.grid.items() if field not in sweep.compare}
    return common | sweep.methods[method].grid


def _multiply(grid: Mapping[str, list[Any]]) -> list[Settings]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
