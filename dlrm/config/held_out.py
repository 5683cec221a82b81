"""Number of validation rows that a fraction of the training rows stands for."""

from typing import Literal


def compute_period(fraction: float) -> int:
    """Return k, where one row of every k is held out; a fraction is rounded to one over a whole number."""
    return round(1.0 / fraction)


def count_validation_rows(num_rows: int, fraction: float, split: Literal["hash", "tail"]) -> int:
    """Count the validation rows among `num_rows` training rows; fewer than k rows have none.

    split: with hash one row of every k is held out, with tail the last rows.
    """
    if fraction == 0.0 or num_rows < compute_period(fraction):
        return 0
    return round(fraction * num_rows) if split == "tail" else num_rows // compute_period(fraction)
