"""Values that are read otherwise than they stand in the files: no faults of their rows, but the user hears of them.

Imports no library that reads rows: the launch process reads the description of packed rows with it.
"""

from collections.abc import Mapping
from typing import Literal

from dlrm.config import format_count

_MAX_SHOWN_COLUMNS = 10
OddKind = Literal["extreme", "rounded", "shortened"]
OddValues = dict[OddKind, dict[str, int]]
"""Number of values by kind and column: `extreme` ones are taken as missing, `rounded` ones are ids from floats so large
that each stands for several integers, `shortened` ones are lists longer than their `sequence.max_length`."""


def add_odd_values(total: OddValues, more: Mapping[OddKind, Mapping[str, int]]) -> None:
    """Add the numbers in `more` to `total`."""
    for kind, columns in more.items():
        for name, number in columns.items():
            counts = total.setdefault(kind, {})
            counts[name] = counts.get(name, 0) + number


def describe_odd_values(odd: Mapping[OddKind, Mapping[str, int]]) -> list[str]:
    """Describe the values in a sentence for each column, the ones with most values first."""
    texts = [
        (number, f"{name}: {_describe(kind, number)}")
        for kind, columns in odd.items()
        for name, number in columns.items()
    ]
    texts.sort(key=lambda text: -text[0])
    more = (
        [f"and {format_count(len(texts) - _MAX_SHOWN_COLUMNS, 'more column')}"]
        if len(texts) > _MAX_SHOWN_COLUMNS
        else []
    )
    return [text for _, text in texts[:_MAX_SHOWN_COLUMNS]] + more


def _describe(kind: OddKind, number: int) -> str:
    if kind == "extreme":
        are = "value is" if number == 1 else "values are"
        return f"{number:,} {are} infinite, beyond float32 or a limit of 64-bit integers, taken as missing"
    if kind == "shortened":
        are = "list is" if number == 1 else "lists are"
        return f"{number:,} {are} longer than sequence.max_length, and read up to that length"
    are = "id is a float" if number == 1 else "ids are floats"
    return f"{number:,} {are} so large that each stands for several integers: store such ids as integers or text"
