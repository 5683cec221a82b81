"""Formatting of numbers and text for the terminal."""

from collections.abc import Sequence
from typing import cast

from rich.console import Console

UNKNOWN = "-"
"""Text in place of a value that is not known."""
MAX_WARNINGS = 12
"""Largest number of warnings that are printed; the others are only counted."""
_WHOLE = frozenset({"samples_per_second", "num_rows", "num_steps", "noise_scale"})
"""Names of values that are shown without decimals."""


def format_percent(share: float | None) -> str:
    if share is None:
        return UNKNOWN
    return "0 %" if share == 0 else f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def format_quantity(value: float | None) -> str:
    """Format a number of any magnitude: a whole number in full, any other with 4 significant digits."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def format_number(value: float, name: str = "") -> str:
    """Format a metric.

    It has no decimals where it is whole or `name` is in _WHOLE. Otherwise it has 4 decimals, or 4 significant digits
    where it is below 0.1.
    """
    if name in _WHOLE or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 0.1 else f"{value:.4g}"


def format_decision(value: object) -> str:
    """Format the value that was decided for a field of a job document."""
    if isinstance(value, int | float):
        return format_number(value)
    return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value or "none")


def escape_unprintable(text: str, keep: str = "") -> str:
    """Return `text` with unprintable characters escaped, such as \\x1b.

    The text may come from a file, and must not control the terminal. keep: characters that are not escaped, such as
    line breaks.
    """
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )


def print_warnings(console: Console, warnings: Sequence[str]) -> None:
    """Print one line per warning; only the first MAX_WARNINGS, and the number of the others."""
    shown = [*warnings[:MAX_WARNINGS]]
    if len(warnings) > MAX_WARNINGS:
        shown.append(f"and {len(warnings) - MAX_WARNINGS:,} more")
    for warning in shown:
        console.print(f"warning: {escape_unprintable(warning)}", markup=False, highlight=False, soft_wrap=True)
