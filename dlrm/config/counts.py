"""Numbers with their nouns, for messages."""


def format_count(number: int, noun: str) -> str:
    """Format a number and its noun, such as `1 row` or `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
