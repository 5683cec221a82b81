"""Parts of messages: numbers with their nouns, names with the number of others, and valid names."""

import fnmatch
from collections.abc import Iterable, Sequence

MAX_SHOWN = 5
"""Largest number of valid names that a message lists."""


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


def describe_no_match(pattern: str, names: Iterable[str]) -> tuple[str, str]:
    """Return the hint to add to the message, and what would be valid."""
    valid_names = sorted(names)
    folded = pattern.casefold()
    meant = [name for name in valid_names if fnmatch.fnmatchcase(name.casefold(), folded)]
    hint = f"; names are case-sensitive: did you mean {_list_few(meant)}?" if meant else ""
    if not valid_names:
        return hint, "leave it out: there are none"
    return hint, f"a name or a pattern that matches one of {_list_few(valid_names)}"


def _list_few(names: list[str]) -> str:
    shown = ", ".join(names[:MAX_SHOWN])
    return f"{shown}, … ({len(names):,} in all)" if len(names) > MAX_SHOWN else shown
