"""Writes bytes for people: as a job's document has them, and as sentences have them."""

from collections.abc import Sequence
from typing import Literal

from sharding.planner.types import Device

UNITS: dict[Device, tuple[tuple[str, int], ...]] = {
    "cpu": (("GiB", 2**30), ("MiB", 2**20)),
    "cuda": (("GB", 10**9), ("MB", 10**6)),
}
"""Units of the memory of machines, and of GPUs, with their bytes: as each is sold."""
LARGE = 10
"""Number of units from which an amount has one decimal; smaller amounts have two."""
MIN_SHARE = 100
"""Parts that are less than 1/100 of a sum are listed together as the rest."""

Rounding = Literal["up", "nearest", "down"]


def in_units(num_bytes: int, device: Device) -> str:
    """Write a size as a job's document has it, such as "3.11GiB", rounded up."""
    digits, name, _ = _write(num_bytes, device, "up")
    return f"{digits}{name}"


def in_sentence(num_bytes: int, device: Device) -> str:
    """Write a size as a sentence has it, such as "3.11 GiB", rounded to the nearest; never 0 where it is more."""
    digits, name, size = _write(num_bytes, device, "nearest")
    if digits == "0" and num_bytes:
        return in_sentence(-(-size // 100), device)
    return f"{digits} {name}"


def as_written(num_bytes: int, device: Device) -> int:
    """Return the bytes that a job has whose document says what `in_units` writes: `num_bytes` or a little more."""
    return _read(*_write(num_bytes, device, "up"))


def as_written_at_most(num_bytes: int, device: Device) -> int:
    """Return the largest amount up to `num_bytes` that `in_units` can write."""
    if as_written(num_bytes, device) == num_bytes:
        return num_bytes
    return _read(*_write(num_bytes, device, "down"))


def list_parts(parts: Sequence[tuple[str, int]], device: Device) -> str:
    """Write the parts of a sum, the largest first, in figures that add up to the sum as `in_sentence` writes it.

    parts: pairs of a name and bytes.
    """
    total = sum(num_bytes for _, num_bytes in parts)
    large = sorted((part for part in parts if part[1] * MIN_SHARE >= total), key=lambda part: -part[1])
    listed = [*large, ("the rest", total - sum(num_bytes for _, num_bytes in large))]
    name, size, grain = _unit(total, device)
    steps = [divmod(num_bytes * 100, size * grain) for _, num_bytes in listed]
    counts = [count for count, _ in steps]
    # Largest remainders: rounded each for itself, the figures would not add up.
    missing = _round(total * 100, size * grain, "nearest") - sum(counts)
    for number in sorted(range(len(steps)), key=lambda number: -steps[number][1])[:missing]:
        counts[number] += 1
    amounts = zip(counts, listed, strict=True)
    return ", ".join(f"{_digits(count * grain)} {name} {what}" for count, (what, _) in amounts if count)


def _write(num_bytes: int, device: Device, rounding: Rounding) -> tuple[str, str, int]:
    """Return the digits, the name of the unit and its bytes."""
    name, size, grain = _unit(num_bytes, device)
    return _digits(_round(num_bytes * 100, size * grain, rounding) * grain), name, size


def _read(digits: str, _name: str, size: int) -> int:
    return int(float(digits) * size)


def _unit(num_bytes: int, device: Device) -> tuple[str, int, int]:
    """Return the name of the unit for an amount, its bytes, and the hundredths of it that amounts are rounded to."""
    units = UNITS[device]
    name, size = next((unit for unit in units if num_bytes >= unit[1]), units[-1])
    return name, size, 10 if num_bytes >= LARGE * size else 1


def _round(count: int, step: int, rounding: Rounding) -> int:
    more = {"up": step - 1, "nearest": step // 2, "down": 0}
    return (count + more[rounding]) // step


def _digits(hundredths: int) -> str:
    return f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".")
