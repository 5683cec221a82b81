"""Numbers with their nouns, for messages."""


def format_count(number: int, noun: str) -> str:
    """Format a number and its noun, such as `1 row` or `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_epochs(number: float) -> str:
    """Format a number of epochs, such as `1 epoch` or `0.5 epochs`."""
    return "1 epoch" if number == 1 else f"{number:g} epochs"
