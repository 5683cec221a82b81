"""Trials with their job documents, and what runs them for a sweep or a tuning."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from cli.experiments.trials.results import TrialNames, TrialResult
from dlrm.config import JobSpec


class ExperimentStopped(Exception):  # noqa: N818, requested, not an error
    """Exception for a sweep or a tuning that was stopped on request."""


class Trial(TrialNames):
    """One run of a sweep or a tuning."""

    document: dict[str, Any]
    """Job document, with paths as written."""
    spec: JobSpec
    """The same document, validated."""


Ended = tuple[Trial, TrialResult]
"""Trial that has ended, and its result."""


class Runner(Protocol):
    """Runner of a few trials at a time, on this machine or as jobs of a service."""

    max_running: int
    """Largest number of trials that run at once."""

    def start(self, trial: Trial, label: str) -> None:
        """Start a trial, or go on with what an earlier command has left of it. label: words next to its progress.

        Raises ExperimentStopped if the command was asked to stop too late for the trials that have ended.
        """
        ...

    def wait(self) -> Sequence[Ended]:
        """Wait until trials have ended, and return them. Raises ExperimentStopped."""
        ...

    def finish(self, keys: Iterable[str]) -> None:
        """Remove what is left of trials whose results are in the file."""
        ...
