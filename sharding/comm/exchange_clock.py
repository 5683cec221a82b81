"""A clock of what ranks exchange: how long it is in flight, and how long this rank waits for it.

The difference is time in which a rank computes while it sends and receives.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch.distributed as dist

ExchangeKind = Literal["ids", "pooled embeddings", "gradients", "dense gradients"]


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
    """Counts exchanges by kind while it runs, and costs nothing else."""

    def __init__(self) -> None:
        """Do not run yet."""
        self.is_running = False
        self.by_kind: dict[ExchangeKind, ExchangeTime] = {}
        """Times by kind since the clock was made; threads of the process groups add to them."""

    def track(self, kind: ExchangeKind, work: dist.Work, sent_bytes: int) -> Waitable:
        """Return `work`, or while the clock runs something that counts until `work` is done, and the wait for it."""
        if not self.is_running:
            return work
        of_kind, started = self._count(kind, sent_bytes), time.perf_counter()

        def end(_: Any) -> None:
            of_kind.flights.append((started, time.perf_counter()))

        work.get_future().add_done_callback(end)
        return _TrackedWork(work, of_kind)

    @contextmanager
    def count_flight(self, kind: ExchangeKind, sent_bytes: int) -> Iterator[None]:
        """Count the block, which returns when an exchange is done, as its flight."""
        if not self.is_running:
            yield
            return
        of_kind, started = self._count(kind, sent_bytes), time.perf_counter()
        yield
        of_kind.flights.append((started, time.perf_counter()))

    @contextmanager
    def count_wait(self, kind: ExchangeKind) -> Iterator[None]:
        """Count the block as a wait for exchanges that another thread makes."""
        started = time.perf_counter()
        yield
        if self.is_running:
            self._count(kind, 0).waited_seconds += time.perf_counter() - started

    def _count(self, kind: ExchangeKind, sent_bytes: int) -> ExchangeTime:
        of_kind = self.by_kind.setdefault(kind, ExchangeTime())
        of_kind.sent_bytes += sent_bytes
        return of_kind


@dataclass(frozen=True)
class _TrackedWork:
    """Work whose wait is counted."""

    work: dist.Work
    of_kind: ExchangeTime

    def wait(self) -> None:
        """Wait until the work is done."""
        started = time.perf_counter()
        self.work.wait()
        self.of_kind.waited_seconds += time.perf_counter() - started
