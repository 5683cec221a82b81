"""Amounts of resources, such as "500m" and "16Gi"."""

import re
from fractions import Fraction

_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    **{unit: Fraction(10 ** (3 * power)) for power, unit in enumerate("MGTPE", 2)},
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", 1)},
}


def parse_quantity(value: str | int | float) -> Fraction:
    """Return the amount. Raises ValueError where it is none."""
    match = re.fullmatch(r"([+-]?[0-9.]+)((?:[eE][+-]?[0-9]+)?)([numkMGTPE]?i?)", str(value))
    if match is None or match[3] not in _SUFFIXES:
        raise ValueError(f"{value!r} is no quantity")
    return Fraction(match[1] + match[2]) * _SUFFIXES[match[3]]


def format_quantity(amount: Fraction) -> str:
    """Return an amount as messages show it, in whole units, binary units or thousandths."""
    if amount.denominator != 1:
        return f"{int(amount * 1000)}m"
    whole = int(amount)
    for unit, power in (("Gi", 3), ("Mi", 2), ("Ki", 1)):
        if whole and whole % 1024**power == 0:
            return f"{whole // 1024**power}{unit}"
    return str(whole)
