"""Parts of a text in Markdown."""

from collections.abc import Sequence


def format_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_code(text: str) -> str:
    """Format `text` as Markdown code that is also valid inside a table; unprintable characters are replaced."""
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    fence = "``" if "`" in plain else "`"
    pad = " " if "`" in plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}".replace("|", "\\|")
