"""A clock of what ranks exchange: how long it is in flight, and how long this rank waits for it.

The difference is time in which a rank computes while it sends and receives.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
import torch.distributed as dist

ExchangeKind = Literal[
    "ids", "pooled embeddings", "gradients", "gradients of copies", "dense gradients", "dense weights"
]


class Waitable(Protocol):
    """Something in flight."""

    def wait(self) -> object:
        """Wait until it has arrived."""


@dataclass
class ExchangeTime:
    """Time and bytes of one kind of exchange, since the clock was started."""

    flights: list[tuple[float, float]] = field(default_factory=list)
    """Start and end of each exchange, in seconds; several may be in flight at the same time."""
    waited_seconds: float = 0.0
    sent_bytes: int = 0
    """Bytes that this rank has sent to others."""

    @property
    def in_flight_seconds(self) -> float:
        """Seconds in which at least one exchange was in flight."""
        total, end = 0.0, 0.0
        for started, ended in sorted(self.flights):
            total += max(0.0, ended - max(started, end))
            end = max(end, ended)
        return total


class ExchangeClock:
    """Counts the exchanges that end while it runs, by kind; it costs nothing while it does not run."""

    def __init__(self) -> None:
        """Do not run yet."""
        self.is_running = False
        self.by_kind: dict[ExchangeKind, ExchangeTime] = {}
        """Times by kind since the clock was made; threads of the process groups add to them."""

    def track(self, kind: ExchangeKind, work: dist.Work, sent_bytes: int) -> Waitable:
        """Return `work`, or while the clock runs something that counts until `work` is done, and the wait for it."""
        if not self.is_running:
            return work
        started = time.perf_counter()
        work.get_future().add_done_callback(lambda _: self._end_flight(kind, started, sent_bytes))
        return _TrackedWork(work, kind, self)

    @contextmanager
    def count_flight(self, kind: ExchangeKind, sent_bytes: int) -> Iterator[None]:
        """Count the block, which returns when an exchange is done, as its flight."""
        started = time.perf_counter()
        yield
        self._end_flight(kind, started, sent_bytes)

    @contextmanager
    def count_wait(self, kind: ExchangeKind) -> Iterator[None]:
        """Count the block as a wait for exchanges."""
        started = time.perf_counter()
        yield
        if self.is_running:
            self._get(kind).waited_seconds += time.perf_counter() - started

    def _end_flight(self, kind: ExchangeKind, started: float, sent_bytes: int) -> None:
        if self.is_running:
            of_kind = self._get(kind)
            of_kind.flights.append((started, time.perf_counter()))
            of_kind.sent_bytes += sent_bytes

    def _get(self, kind: ExchangeKind) -> ExchangeTime:
        return self.by_kind.setdefault(kind, ExchangeTime())


def count_all_reduced_bytes(summed: torch.Tensor, world_size: int) -> int:
    """Count the bytes that a rank sends in an all-reduce of `summed`.

    In a reduce-scatter, and again in an all-gather, it sends all but its own part.
    """
    return 2 * summed.nbytes * (world_size - 1) // world_size


@dataclass(frozen=True)
class _TrackedWork:
    """Work whose wait is counted."""

    work: dist.Work
    kind: ExchangeKind
    clock: ExchangeClock

    def wait(self) -> None:
        """Wait until the work is done."""
        with self.clock.count_wait(self.kind):
            self.work.wait()
