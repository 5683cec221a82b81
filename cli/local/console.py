"""Consoles to which commands print, and the forms of numbers and text there."""

import re
from collections.abc import Sequence
from typing import Any, cast

from rich.console import Console

UNLIMITED_WIDTH = 10_000
"""Columns of a console that is not a terminal, so that rich does not wrap lines."""
UNKNOWN = "-"
"""Text in place of a value that is not known."""
MAX_WARNINGS = 12
"""Largest number of warnings that are printed; the others are only counted."""
_WHOLE = frozenset({"samples_per_second", "num_rows", "num_steps", "noise_scale"})
"""Names of values that are shown without decimals."""


def console_on(*, stderr: bool = False) -> Console:
    """Return a console on stdout, or on stderr.

    If it is not a terminal, lines are neither cut nor wrapped: a program that reads them needs whole lines.
    """
    console = Console(stderr=stderr)
    return console if console.is_terminal else _PlainConsole(stderr=stderr, width=UNLIMITED_WIDTH)


class _PlainConsole(Console):
    """Console whose lines end with their text: tables fill each column up to its longest cell."""

    def print(self, *objects: Any, **options: Any) -> None:
        with self.capture() as printed:
            super().print(*objects, **options)
        self.file.write(re.sub(r" +\n", "\n", printed.get()))
        self.file.flush()


def print_line(console: Console, line: str, style: str | None = None) -> None:
    """Print a line as it is, without wrapping; letters that control a terminal are escaped."""
    console.print(escape_unprintable(line), style=style, markup=False, highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """Print a line to stderr, beside the result on stdout."""
    print_line(console_on(stderr=True), line)


def print_heading(console: Console, words: str) -> None:
    """Print a heading: a horizontal rule on a terminal, a plain line elsewhere."""
    if console.is_terminal:
        console.rule(words, align="left", style="dim")
    else:
        console.print(f"{words}:", highlight=False)


def print_warnings(warnings: Sequence[str], console: Console | None = None) -> None:
    """Print one line per warning; only the first MAX_WARNINGS, and the number of the others.

    console: None for stderr.
    """
    left = len(warnings) - MAX_WARNINGS
    for warning in [*warnings[:MAX_WARNINGS], *([f"and {left:,} more"] if left > 0 else [])]:
        print_line(console or console_on(stderr=True), f"warning: {warning}")


def escape_unprintable(text: str, keep: str = "") -> str:
    """Return `text` with unprintable characters escaped, such as \\x1b.

    The text may come from a file, and must not control the terminal. keep: characters that are not escaped, such as
    line breaks.
    """
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )


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

    It has no decimals if it is whole or `name` is in _WHOLE. Otherwise it has 4 decimals, or 4 significant digits
    below 0.1.
    """
    if name in _WHOLE or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 0.1 else f"{value:.4g}"


def format_decision(value: object) -> str:
    """Format the value that was decided for a field of a job document."""
    if isinstance(value, int | float):
        return format_number(value)
    return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value or "none")


def format_duration(seconds: float) -> str:
    """Format seconds, such as "42 s", "3 min 05 s" or "2 h 10 min"."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
