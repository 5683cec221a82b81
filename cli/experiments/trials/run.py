"""One run of a trial, trained as `dlrm train` does."""

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.experiments.trials.fields import Settings
from cli.local.attempt_run import run_attempt
from cli.local.console import console_on
from cli.local.errors import BadInputError
from cli.local.progress import PREPARING, ProgressLine
from cli.local.run_directory import (
    DifferentRunError,
    NewAttempt,
    SucceededError,
    create_next_attempt,
    create_run,
    require_unfinished,
)
from dlrm.record import Outcome, PreparedData, RunDirectory, RunInUseError, hold_run_lock
from service.client import Progress

RETRY_SECONDS = 1.0
"""Seconds from one look at a run that an earlier command has left running to the next."""


class ExperimentStopped(Exception):  # noqa: N818, requested, not an error
    """Exception for a sweep or a tuning that was stopped on request."""


@dataclass(frozen=True)
class TrialEnd:
    """End of a trial's run."""

    outcome: Outcome
    seconds: float
    """Duration without a preparation for all trials; for earlier attempts, and a run that had already ended, the
    duration of the steps alone."""
    is_stop_requested: bool
    """Whether the command was asked to stop, too late for this run: no other one may start."""


def run_trial(document: Path, directory: RunDirectory, settings: Settings, label: str, *, is_first: bool) -> TrialEnd:
    """Train a job document with some fields set, or continue the run that an earlier command has begun.

    A run that continues takes from the document how it is trained, such as the memory. label: words shown next to the
    progress. is_first: whether the run may have to prepare the data, for all that follow. Raises ExperimentStopped and
    CommandError.
    """
    try:
        started = _start(document, directory, settings)
    except SucceededError as succeeded:
        return TrialEnd(
            succeeded.outcome, compute_training_seconds(succeeded.outcome.metrics) or 0.0, is_stop_requested=False
        )
    seconds, last = 0.0, time.monotonic()
    with ProgressLine() as line:
        is_terminal = console_on(stderr=True).is_terminal

        def watch(progress: Progress) -> None:
            nonlocal seconds, last
            now = time.monotonic()
            # A preparation does not count, as all trials share it.
            seconds += now - last if not is_first or progress.phase != PREPARING else 0.0
            last = now
            if is_terminal:
                line.show(label, progress)

        # Its lines are not printed: its progress and its figures are shown.
        end = run_attempt(started, lambda _: None, watch)
    if end.outcome.state == "stopped":
        raise ExperimentStopped
    # Attempts that were stopped before are in the metrics alone.
    seconds = max(seconds, compute_training_seconds(end.outcome.metrics) or 0.0)
    return TrialEnd(end.outcome, seconds, end.is_stop_requested)


def read_data_checksum(directory: RunDirectory) -> str | None:
    """Read the checksum of the prepared rows of a run; None for a synthetic log."""
    prepared = PreparedData.read(directory.data)
    return None if prepared is None else prepared.checksum


def compute_training_seconds(metrics: Mapping[str, float | None]) -> float | None:
    """Compute the seconds of all steps of a run over all its attempts; None if its metrics lack them."""
    num_samples, speed = metrics.get("num_samples"), metrics.get("samples_per_second")
    return num_samples / speed if num_samples and speed else None


def _start(document: Path, directory: RunDirectory, settings: Settings) -> NewAttempt:
    assignments = [f"{field}={json.dumps(value)}" for field, value in settings.items()]
    if not directory.spec.exists():
        # A kill may have left a directory without a document.
        shutil.rmtree(directory.path, ignore_errors=True)
        return create_run(document, directory.path, assignments, remedy="name another directory with --output")
    _wait_until_free(directory)
    # The document, and the data that it names, do not matter any more to a run that is done.
    require_unfinished(directory)
    try:
        return create_next_attempt(directory.path, document, assignments)
    except DifferentRunError as error:
        remedy = f"with these settings it is a different run: remove {directory.path}, and it starts from the beginning"
        raise BadInputError(*error.differences, remedy) from None


def _wait_until_free(directory: RunDirectory) -> None:
    """Wait for the launch process of a command that was killed: it trains on until its end."""
    is_announced = False
    while True:
        try:
            with hold_run_lock(directory):
                return
        except RunInUseError as error:
            if not is_announced:
                is_announced = True
                console_on(stderr=True).print(f"waiting: {error}", markup=False, highlight=False)
            time.sleep(RETRY_SECONDS)
