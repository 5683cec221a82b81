"""Time in the fake cluster, which tests move on."""

import threading
import time
from datetime import UTC, datetime


class Clock:
    """Clock of all controllers. It stands still until `advance`, unless it is `ticking`.

    ticking: it goes on with real time as well, which real processes need.
    """

    def __init__(self, ticking: bool = False) -> None:
        self.ticking = ticking
        self._base = float(int(time.time()))
        self._started_at = time.monotonic()
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return seconds since the epoch."""
        elapsed = time.monotonic() - self._started_at if self.ticking else 0.0
        return self._base + elapsed

    def advance(self, seconds: float) -> None:
        """Move time on."""
        with self._lock:
            self._base += seconds

    def timestamp(self) -> str:
        """Return now as metav1.Time: RFC 3339 in whole seconds."""
        return format_time(self.now())


def format_time(seconds: float) -> str:
    """Return a time as metav1.Time writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Return seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
