"""Consoles to which commands print."""

from rich.console import Console

UNLIMITED_WIDTH = 10_000
"""Columns of a console that is not a terminal, so that rich does not wrap lines."""


def console_on(*, stderr: bool = False) -> Console:
    """Return a console on stdout, or on stderr.

    Where it is not a terminal, lines are neither cut nor wrapped: a program that reads them needs whole lines.
    """
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=UNLIMITED_WIDTH)


def print_heading(console: Console, words: str) -> None:
    """Print a heading: a horizontal rule on a terminal, a plain line elsewhere."""
    if console.is_terminal:
        console.rule(words, align="left", style="dim")
    else:
        console.print(f"{words}:", highlight=False)
