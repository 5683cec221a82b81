"""Results of a sweep: `results.jsonl`, a line for each trial that has ended, of any machine and any version."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from cli.local.errors import BadInputError
from dlrm.record import sync_directory

FILE_NAME = "results.jsonl"
"""Name of the file with the results, in the directory of the sweep."""
Stage = Literal["grid", "rung", "confirm"]
"""Purpose of a trial: to choose among settings (`rung`: with a part of the epochs), or to be the result."""
TrialOutcome = Literal["done", "diverged", "failed"]
"""End of a trial. `diverged` is a result: the settings do not train. `failed` is none, and is tried again."""


class _Record(BaseModel):
    # Fields of later versions are ignored, so that their results can be read.
    model_config = ConfigDict(extra="ignore", frozen=True)


class CurvePoint(_Record):
    """One evaluation in the course of a run."""

    step: int
    num_samples: int | None = None
    """Training rows consumed before the evaluation."""
    auc: float | None = None
    log_loss: float
    """Log-loss on the evaluation rows, as is the AUC."""
    validation_log_loss: float | None = None
    train_auc: float | None = None
    """AUC on a fixed sample of training rows, as is the next; null where `run.num_train_eval_rows` is 0."""
    train_log_loss: float | None = None
    noise_scale: float | None = None
    """Noise scale in samples, as smoothed up to this step; null if it was not measured."""


class KeptScores(_Record):
    """Scores of the evaluation rows by the model of a trial, in files beside the results."""

    logits: str
    """File with a float32 logit for each row, in the order of the rows; relative to the results."""
    labels: str
    """File with the labels of the rows, which trials with the same `checksum` share; relative to the results."""
    weights: str | None = None
    """File with the weights of the rows; null where all have the same."""
    checksum: str
    """Checksum of labels and weights in the order of the rows: only trials with the same one may be paired."""
    num_rows: int


class Environment(_Record):
    """Software and hardware of a trial."""

    versions: dict[str, str] = {}
    processor: str | None = None
    num_cores: int | None = None
    memory_bytes: int | None = None
    gpu: str | None = None


class TrialNames(_Record):
    """Key of a trial, and the names that the document of its sweep gives it."""

    key: str
    """Hash of the job document and its seed; of two lines with the same one the later counts."""
    stage: Stage
    method: str
    settings: dict[str, Any]
    """Values of the fields among which is chosen, by dotted path."""
    compared: dict[str, Any]
    """Values of the compared fields."""
    seed: int
    fraction: float
    """Share of the job's epochs."""


class TrialResult(TrialNames):
    """A trial that has ended, one line of the file."""

    outcome: TrialOutcome
    reason: str
    """Reason of the end, as runs and jobs have it, such as `completed`."""
    message: str = ""
    metrics: dict[str, float | None] = {}
    """Final metrics of the kept model, by name: `auc`, `log_loss`, `calibration`, `validation_log_loss` and others."""
    data_checksum: str | None = None
    """Checksum of the prepared rows; null for a synthetic log, and where it ran elsewhere."""
    num_steps: int | None = None
    num_samples: int | None = None
    seconds: float
    """Seconds from start to end, without the preparation of data; of the last attempt where it was interrupted."""
    training_seconds: float | None = None
    """Seconds of its training steps, over all attempts."""
    cpu_seconds: float | None = None
    """Processor seconds of all its processes; null where it was interrupted, has prepared the rows for all trials, or
    ran elsewhere."""
    num_attempts: int = 1
    curve: list[CurvePoint] = []
    """Evaluations in the course of the run."""
    decided: dict[str, Any] = {}
    """Values of fields that the document left open, by dotted path."""
    scores: KeptScores | None = None
    environment: Environment | None = None
    """Software and hardware of the run; null where it ran on another machine."""
    finished_at: str | None = None
    """Time of the end in UTC, ISO 8601."""


def shorten_paths(message: str) -> str:
    """Return a message with absolute paths as their last names: results are read on other machines."""
    return re.sub(r"(?<![\w:./])(?:/[^\s/:;,()'\"]+)+/([^\s/:;,()'\"]+)", r"\1", message)


def read_results(path: Path) -> list[TrialResult]:
    """Read the trials that have ended, in their order; none if there is no file.

    The beginning of a last line, which a crash left, is ignored; a whole one without a line break counts. Raises
    BadInputError where another line is not one.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None
    results: list[TrialResult] = []
    *lines, last = content.split(b"\n")
    for number, line in enumerate([*lines, last] if _is_result(last) else lines, 1):
        try:
            results.append(TrialResult.model_validate_json(line))
        except ValidationError:
            valid = "delete the line, and its trial is repeated"
            raise BadInputError(f"{path}: line {number} is not the result of a trial (valid: {valid})") from None
    return results


def index_results(results: Sequence[TrialResult]) -> dict[str, TrialResult]:
    """Return the trials that need no other run, by key: those that are done or have diverged."""
    return {result.key: result for result in results if result.outcome != "failed"}


def can_pair(one: TrialResult, other: TrialResult) -> bool:
    """Whether the scores of two trials may be compared row by row: both are kept, and of the same rows."""
    return one.scores is not None and other.scores is not None and one.scores.checksum == other.scores.checksum


def append_result(path: Path, result: TrialResult) -> None:
    """Append a line, and cut off what a crash left of one before it, or end that where it is whole.

    Raises BadInputError if it cannot.
    """
    line = result.model_dump_json().encode() + b"\n"
    try:
        is_new = not path.exists()
        with path.open("a+b", buffering=0) as file:
            _end_last_line(path, file.fileno())
            while line:
                line = line[os.write(file.fileno(), line) :]
            os.fsync(file.fileno())
        if is_new:
            sync_directory(path.parent)
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None


def _end_last_line(path: Path, descriptor: int) -> None:
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole == len(content):
        return
    if _is_result(content[whole:]):
        os.write(descriptor, b"\n")
    else:
        os.ftruncate(descriptor, whole)


def _is_result(line: bytes) -> bool:
    try:
        TrialResult.model_validate_json(line)
    except ValidationError:
        return False
    return True
