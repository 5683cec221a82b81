"""Figures and texts as people read them."""

from collections.abc import Sequence

from rich.console import Console

UNKNOWN = "-"
MAX_WARNINGS = 12
_WHOLE = frozenset({"samples_per_second", "num_rows", "num_steps", "noise_scale"})
"""Figures whose fractions say nothing."""


def percent(share: float | None) -> str:
    if share is None:
        return UNKNOWN
    return "0 %" if share == 0 else f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def quantity(value: float | None) -> str:
    """A number with the digits that matter."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def figure(value: float, name: str = "") -> str:
    """A number as people read it: whole, or with the digits that matter."""
    if name in _WHOLE or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 0.1 else f"{value:.4g}"


def printable(text: str, kept: str = "") -> str:
    """`text`, which may come from a file, with letters that a terminal would obey written out, such as \\x1b.

    kept: letters of it that stay as they are, such as line breaks.
    """
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode()
        for letter in text
    )


def print_warnings(console: Console, warnings: Sequence[str]) -> None:
    """A line each; of many the first ones."""
    shown = [*warnings[:MAX_WARNINGS]]
    if len(warnings) > MAX_WARNINGS:
        shown.append(f"and {len(warnings) - MAX_WARNINGS:,} more")
    for warning in shown:
        console.print(f"warning: {printable(warning)}", markup=False, highlight=False, soft_wrap=True)
