"""Parts of messages: numbers with their nouns, and names with the number of others."""

from collections.abc import Sequence


def format_count(number: int, noun: str) -> str:
    """Format a number and its noun, such as `1 row` or `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_epochs(number: float) -> str:
    """Format a number of epochs, such as `1 epoch` or `0.5 epochs`."""
    return "1 epoch" if number == 1 else f"{number:g} epochs"


def format_some(shown: Sequence[str], num_all: int) -> str:
    """Format the first of `num_all` names, such as `a, b and 4 more`."""
    num_others = num_all - len(shown)
    return ", ".join(shown) + (f" and {num_others:,} more" if num_others else "")
