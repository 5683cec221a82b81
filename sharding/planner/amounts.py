"""Bytes in words: as a job's document takes them, and as sentences have them."""

from collections.abc import Sequence
from typing import Literal

from sharding.planner.topology import Device

UNITS: dict[Device, tuple[tuple[str, int], ...]] = {
    "cpu": (("GiB", 2**30), ("MiB", 2**20)),
    "cuda": (("GB", 10**9), ("MB", 10**6)),
}
"""Memory of machines, and of GPUs, as each is sold."""
LARGE = 10
"""Of a unit, from which on one decimal is enough; fewer have two."""
MIN_SHARE = 100
"""What is less than one in so many of a sum is told with the rest of it."""

Rounding = Literal["up", "nearest", "down"]


def in_units(num_bytes: int, device: Device) -> str:
    """Rounded up, such as "3.11GiB": a size as a job's document takes it."""
    digits, name, _ = _written(num_bytes, device, "up")
    return f"{digits}{name}"


def in_sentence(num_bytes: int, device: Device) -> str:
    """Such as "3.11 GiB", to the nearest; of something never nothing."""
    digits, name, size = _written(num_bytes, device, "nearest")
    if digits == "0" and num_bytes:
        return in_sentence(-(-size // 100), device)
    return f"{digits} {name}"


def as_written(num_bytes: int, device: Device) -> int:
    """The bytes that `in_units` writes, exactly as a document that says so is read: about `num_bytes` or more."""
    return _read(*_written(num_bytes, device, "up"))


def as_written_at_most(num_bytes: int, device: Device) -> int:
    """The same of no more: `num_bytes` itself where a document says just that."""
    if as_written(num_bytes, device) == num_bytes:
        return num_bytes
    return _read(*_written(num_bytes, device, "down"))


def sum_in_words(parts: Sequence[tuple[str, int]], device: Device) -> str:
    """Of what a sum consists, the most first, in figures that add up to the sum as `in_sentence` has it."""
    total = sum(num_bytes for _, num_bytes in parts)
    large = sorted((part for part in parts if part[1] * MIN_SHARE >= total), key=lambda part: -part[1])
    told = [*large, ("the rest", total - sum(num_bytes for _, num_bytes in large))]
    name, size, grain = _unit(total, device)
    steps = [divmod(num_bytes * 100, size * grain) for _, num_bytes in told]
    counts = [count for count, _ in steps]
    # Each rounded by itself would not add up.
    missing = _rounded(total * 100, size * grain, "nearest") - sum(counts)
    for number in sorted(range(len(steps)), key=lambda number: -steps[number][1])[:missing]:
        counts[number] += 1
    amounts = zip(counts, told, strict=True)
    return ", ".join(f"{_digits(count * grain)} {name} {what}" for count, (what, _) in amounts if count)


def _written(num_bytes: int, device: Device, rounding: Rounding) -> tuple[str, str, int]:
    """Digits, the name of the unit and its bytes."""
    name, size, grain = _unit(num_bytes, device)
    return _digits(_rounded(num_bytes * 100, size * grain, rounding) * grain), name, size


def _read(digits: str, _name: str, size: int) -> int:
    return int(float(digits) * size)


def _unit(num_bytes: int, device: Device) -> tuple[str, int, int]:
    """Its name, its bytes, and to how many hundredths of it amounts are told."""
    units = UNITS[device]
    name, size = next((unit for unit in units if num_bytes >= unit[1]), units[-1])
    return name, size, 10 if num_bytes >= LARGE * size else 1


def _rounded(count: int, step: int, rounding: Rounding) -> int:
    more = {"up": step - 1, "nearest": step // 2, "down": 0}
    return (count + more[rounding]) // step


def _digits(hundredths: int) -> str:
    return f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".")
