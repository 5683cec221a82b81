"""Formats numbers of bytes for users: as job documents and as sentences write them."""

from collections.abc import Sequence
from typing import Literal

from sharding.planner.types import Device

UNITS: dict[Device, tuple[tuple[str, int], ...]] = {
    "cpu": (("GiB", 2**30), ("MiB", 2**20)),
    "cuda": (("GB", 10**9), ("MB", 10**6)),
}
"""Units of memory with their bytes: binary for machines, decimal for GPUs, as each is sold."""
LARGE = 10
"""Number of units from which an amount has one decimal; smaller amounts have two."""
MIN_SHARE = 100
"""Parts that are less than 1/100 of a sum are listed together as the rest."""

Rounding = Literal["up", "nearest", "down"]


def format_for_document(num_bytes: int, device: Device) -> str:
    """Format a size as job documents write it, such as "3.11GiB", rounded up."""
    digits, name, _ = _write(num_bytes, device, "up")
    return f"{digits}{name}"


def format_for_sentence(num_bytes: int, device: Device) -> str:
    """Format a size for a sentence, such as "3.11 GiB", rounded to the nearest; never 0 if the size is positive."""
    digits, name, size = _write(num_bytes, device, "nearest")
    if digits == "0" and num_bytes:
        return format_for_sentence(-(-size // 100), device)
    return f"{digits} {name}"


def round_up_as_written(num_bytes: int, device: Device) -> int:
    """Return the bytes that `format_for_document` writes for `num_bytes`: as many, or a little more."""
    return _read(*_write(num_bytes, device, "up"))


def round_down_as_written(num_bytes: int, device: Device) -> int:
    """Return the largest amount up to `num_bytes` that `format_for_document` can write."""
    if round_up_as_written(num_bytes, device) == num_bytes:
        return num_bytes
    return _read(*_write(num_bytes, device, "down"))


def format_parts(parts: Sequence[tuple[str, int]], device: Device) -> str:
    """Format the parts of a sum, the largest first, in figures that add up to what `format_for_sentence` writes.

    parts: pairs of a name and bytes.
    """
    total = sum(num_bytes for _, num_bytes in parts)
    large = sorted((part for part in parts if part[1] * MIN_SHARE >= total), key=lambda part: -part[1])
    shown = [*large, ("the rest", total - sum(num_bytes for _, num_bytes in large))]
    unit, size, step = _choose_unit(total, device)
    quotients = [divmod(num_bytes * 100, size * step) for _, num_bytes in shown]
    counts = [count for count, _ in quotients]
    # Largest remainders: figures that are each rounded separately would not add up.
    missing = _round(total * 100, size * step, "nearest") - sum(counts)
    for number in sorted(range(len(quotients)), key=lambda number: -quotients[number][1])[:missing]:
        counts[number] += 1
    amounts = zip(counts, shown, strict=True)
    return ", ".join(f"{_format_digits(count * step)} {unit} {name}" for count, (name, _) in amounts if count)


def _write(num_bytes: int, device: Device, rounding: Rounding) -> tuple[str, str, int]:
    """Return the digits, the name of the unit and its bytes."""
    name, size, step = _choose_unit(num_bytes, device)
    return _format_digits(_round(num_bytes * 100, size * step, rounding) * step), name, size


def _read(digits: str, _name: str, size: int) -> int:
    return int(float(digits) * size)


def _choose_unit(num_bytes: int, device: Device) -> tuple[str, int, int]:
    """Return the name of the unit for an amount, its bytes, and the hundredths of it that amounts are rounded to."""
    units = UNITS[device]
    name, size = next((unit for unit in units if num_bytes >= unit[1]), units[-1])
    return name, size, 10 if num_bytes >= LARGE * size else 1


def _round(count: int, step: int, rounding: Rounding) -> int:
    offset = {"up": step - 1, "nearest": step // 2, "down": 0}
    return (count + offset[rounding]) // step


def _format_digits(hundredths: int) -> str:
    return f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".")
