"""Rows of the table of attacks, and the limits that each must keep."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.attacks.watch import LOST, Probe

MAX_BYTES = 50 * 2**20
"""Memory that no attack may take."""
MAX_SECONDS = 1.0
"""Time for which no attack may hold a request of somebody else."""
GOOD = 200


@dataclass(frozen=True)
class Row:
    """An attack, and what came of it."""

    attack: str
    answer: str
    grown_bytes: int
    """Largest growth of the resident memory of the service."""
    children_bytes: int
    """Largest memory of the child processes that the service has started for it."""
    longest_seconds: float
    """Longest request of the other client during the attack."""
    num_requests: int
    """Requests of the other client."""
    refused: dict[str, int]
    """Number of those by their status, if it was not 200; 0 if there was no answer."""


def make_row(
    attack: str, answer: str, memory: tuple[int, int], window: tuple[float, float], probes: Sequence[Probe]
) -> Row:
    """Make the row of an attack.

    memory: of the service and of its children. probes: all requests of the other client; those in `window` count.
    """
    start, end = window
    # A request that got no answer later is one of those that are cut off when the service is started anew.
    during = [
        probe
        for probe in probes
        if probe.end > start and probe.start < end and (probe.status != LOST or probe.end < end)
    ]
    refused = Counter(str(probe.status) for probe in during if probe.status != GOOD)
    longest = max((probe.end - probe.start for probe in during), default=float("inf"))
    return Row(attack, answer, *memory, longest, len(during), dict(refused))


def list_faults(rows: Sequence[Row]) -> list[str]:
    """List in a sentence each what exceeds a limit."""
    faults: list[str] = []
    for row in rows:
        if row.grown_bytes > MAX_BYTES:
            faults.append(f"{row.attack}: takes {row.grown_bytes / 1e6:.0f} MB")
        if row.longest_seconds > MAX_SECONDS:
            faults.append(f"{row.attack}: holds another request for {row.longest_seconds:.1f} s")
        if row.refused:
            faults.append(f"{row.attack}: others are refused ({_describe_refused(row)})")
    return faults


def format_table(rows: Sequence[Row]) -> str:
    """Format the table in Markdown."""
    head = ["| attack | answer | memory, MB | longest other request, ms |", "|---|---|---|---|"]
    return "\n".join([*head, *(_format_row(row) for row in rows)])


def _format_row(row: Row) -> str:
    memory = f"{row.grown_bytes / 1e6:.0f}"
    if row.children_bytes > 10**6:
        memory += f", and {row.children_bytes / 1e6:.0f} in child processes"
    refused = f" ({_describe_refused(row)})" if row.refused else ""
    return f"| {row.attack} | {row.answer} | {memory} | {1000 * row.longest_seconds:.0f}{refused} |"


def _describe_refused(row: Row) -> str:
    return ", ".join(f"{number} x {status}" for status, number in row.refused.items())
