"""Where commands print."""

from rich.console import Console

UNLIMITED_WIDTH = 10_000


def console_on(*, stderr: bool = False) -> Console:
    """Standard output, or standard error; nothing is cut or folded for programs, which want lines whole."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=UNLIMITED_WIDTH)


def print_heading(console: Console, words: str) -> None:
    """A rule across a terminal, a line elsewhere."""
    if console.is_terminal:
        console.rule(words, align="left", style="dim")
    else:
        console.print(f"{words}:", highlight=False)
