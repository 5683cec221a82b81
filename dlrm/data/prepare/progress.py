"""Progress of a preparation, reported a few times a second, and its other messages."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressEvent:
    """Report of progress."""

    done_fraction: float
    """Finished share of the whole preparation, 0 to 1."""
    message: str
    """Phase, speed and estimated time left, such as `reading: 1,200,000 rows, 310,000 rows/s, 12 s left`."""


@dataclass(frozen=True)
class NoteEvent:
    """Report of an event to be recorded, such as bad rows that were left out."""

    name: str
    """Short name of the kind of event, such as `bad_row`."""
    message: str


OnEvent = Callable[[ProgressEvent | NoteEvent], None]


_MIN_INTERVAL_SECONDS = 0.2


class PreparationProgress:
    """Progress through phases, each a share of the whole preparation."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._started = time.monotonic()
        self._reported_at = 0.0
        self._phase = ""
        self._begin = self._end = 0.0
        self._num_units = self._done_units = self._done_rows = 0
        self._phase_started = self._started

    def note(self, name: str, message: str) -> None:
        self._on_event(NoteEvent(name, message))

    def start(self, phase: str, until: float, num_units: int) -> None:
        """Begin a phase, from the end of the phase before up to the share `until` of the whole, 0 to 1.

        num_units: size of the phase, in the unit that `advance` counts, such as bytes or rows.
        """
        self._phase, self._begin, self._end = phase, self._end, until
        self._num_units, self._done_units, self._done_rows = num_units, 0, 0
        self._phase_started = time.monotonic()
        self._report()

    def advance(self, num_units: int, num_rows: int = 0) -> None:
        self._done_units += num_units
        self._done_rows += num_rows
        if time.monotonic() - self._reported_at >= _MIN_INTERVAL_SECONDS:
            self._report()

    def finish(self) -> None:
        self._on_event(ProgressEvent(1.0, f"done in {_format_duration(time.monotonic() - self._started)}"))

    @property
    def done_fraction(self) -> float:
        """Finished share of the whole preparation, 0 to 1."""
        phase_fraction = min(self._done_units / self._num_units, 1.0) if self._num_units else 0.0
        return self._begin + phase_fraction * (self._end - self._begin)

    def _report(self) -> None:
        self._reported_at = now = time.monotonic()
        done = self.done_fraction
        parts = [self._phase]
        if self._done_rows:
            rate = self._done_rows / max(now - self._phase_started, 1e-9)
            parts.append(f"{self._done_rows:,} rows, {rate:,.0f} rows/s")
        if done > 0.01:
            parts.append(f"{_format_duration((now - self._started) * (1 - done) / done)} left")
        self._on_event(ProgressEvent(done, parts[0] + (f": {', '.join(parts[1:])}" if len(parts) > 1 else "")))


def _format_duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
