"""Runner of trials: what the loop of a sweep needs of this machine, or of a service."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from cli.experiments.sweep.results import TrialResult
from cli.experiments.sweep.trials import Trial


class SweepStopped(Exception):  # noqa: N818, requested, not an error
    """Exception for a sweep that was stopped on request."""


class Runner(Protocol):
    """Runner of a few trials at a time."""

    max_running: int
    """Largest number of trials that run at once."""

    @property
    def is_stop_requested(self) -> bool:
        """Whether the command was asked to stop too late for the trials that have ended: no other one may start."""
        ...

    def start(self, trial: Trial, label: str) -> None:
        """Start a trial, or go on with what an earlier command has left of it. label: words next to its progress."""
        ...

    def wait(self) -> Sequence[tuple[Trial, TrialResult]]:
        """Wait until trials have ended, and return them. Raises SweepStopped."""
        ...

    def finish(self, keys: Iterable[str]) -> None:
        """Remove what trials have left, whose results are in the file."""
        ...
