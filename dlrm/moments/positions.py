"""Who is where in a global batch: its equal parts, their valid samples, the chunks of a rank. Pure functions."""

from collections.abc import Iterator


def bounds(number: int, num_parts: int, global_size: int) -> tuple[int, int]:
    """First position of part `number` of a global batch, and the one behind its last; parts differ by one at most."""
    return number * global_size // num_parts, (number + 1) * global_size // num_parts


def parts_of(start: int, end: int, num_parts: int, global_size: int) -> Iterator[tuple[int, int]]:
    """Bounds of the parts that have positions in [start, end), cut off there; in order."""
    for number in range(start * num_parts // global_size, num_parts):
        first, behind = bounds(number, num_parts, global_size)
        if first >= end:
            return
        first, behind = max(first, start), min(behind, end)
        if first < behind:
            yield first, behind


def num_in(start: int, end: int, num_valid: int) -> int:
    """Valid samples in [start, end): they come first in a batch."""
    return max(0, min(end, num_valid) - start)


def chunks_of(start: int, end: int, chunk_size: int) -> Iterator[tuple[int, int]]:
    """[start, end) in chunks; the last may be short."""
    for first in range(start, end, chunk_size):
        yield first, min(first + chunk_size, end)
