"""Types of command line arguments that several measurements have."""

import argparse


def parse_count(text: str) -> int:
    """Parse a positive integer. Raises ArgumentTypeError, which argparse reports with the option's name."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return int(text)
