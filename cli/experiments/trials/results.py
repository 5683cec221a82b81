"""Results of a sweep: `results.jsonl`, a line for each trial that has ended, of any machine and any version.

Beside it `asked.json` has the trials that count by the present document: earlier documents added lines too.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cli.experiments.trials.fields import format_cell, format_settings
from cli.local.errors import BadInputError, CommandError
from cli.local.outputs import write_output
from dlrm.record import sync_directory, write_atomically

FILE_NAME = "results.jsonl"
"""Name of the file with the results, in the directory of the sweep."""
ASKED_FILE_NAME = "asked.json"
"""Name of the file with the trials that count, in the same directory."""
Stage = Literal["grid", "rung", "confirm"]
"""Purpose of a trial: to choose among settings (`rung`: with a part of the epochs), or to be the result."""
TrialOutcome = Literal["done", "diverged", "failed"]
"""End of a trial. `diverged` is a result: the settings do not train. `failed` is none, and is tried again."""


Line = TypeVar("Line", bound=BaseModel)


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
    """AUC on a fixed sample of training rows, as is the next; null if `run.num_train_eval_rows` is 0."""
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
    """File with the weights of the rows; null if all have the same."""
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

    @property
    def cell(self) -> str:
        """Words for the method and the compared values, such as "adam, 4096"."""
        return format_cell(self.method, self.compared)

    @property
    def label(self) -> str:
        """Words for the whole trial, such as "adam, 4096, learning_rate 0.01, seed 0"."""
        settings = [format_settings(self.settings)] if self.settings else []
        part = [] if self.fraction == 1.0 else [f"1/{1 / self.fraction:.0f} of the epochs"]
        return ", ".join([self.cell, *settings, f"seed {self.seed}", *part])

    def list_names(self) -> dict[str, Any]:
        """List the names, by field."""
        return self.model_dump(include={*TrialNames.model_fields} - {"key"})


class TrialResult(TrialNames):
    """A trial that has ended, one line of the file."""

    outcome: TrialOutcome
    reason: str
    """Reason of the end, as runs and jobs have it, such as `completed`."""
    message: str = ""
    metrics: dict[str, float | None] = {}
    """Final metrics of the kept model, by name: `auc`, `log_loss`, `calibration`, `validation_log_loss` and others."""
    data_checksum: str | None = None
    """Checksum of the prepared rows; null for a synthetic log, and for a run elsewhere."""
    num_steps: int | None = None
    num_samples: int | None = None
    seconds: float
    """Seconds from start to end, without the preparation of data; of the last attempt if it was interrupted."""
    training_seconds: float | None = None
    """Seconds of its training steps, over all attempts."""
    cpu_seconds: float | None = None
    """Processor seconds of all its processes; null if it was interrupted, has prepared the rows for all trials, or
    ran elsewhere."""
    num_attempts: int = 1
    curve: list[CurvePoint] = []
    """Evaluations in the course of the run."""
    decided: dict[str, Any] = {}
    """Values of fields that the document left open, by dotted path."""
    scores: KeptScores | None = None
    environment: Environment | None = None
    """Software and hardware of the run; null for a run on another machine."""
    finished_at: str | None = None
    """Time of the end in UTC, ISO 8601."""


def shorten_paths(message: str) -> str:
    """Return a message with absolute paths as their last names: results are read on other machines."""
    return re.sub(r"(?<![\w:./])(?:/[^\s/:;,()'\"]+)+/([^\s/:;,()'\"]+)", r"\1", message)


def read_results(path: Path) -> list[TrialResult]:
    """Read the trials that have ended, as `read_lines` does."""
    return read_lines(path, TrialResult, "the result of a trial")


def read_lines(path: Path, kind: type[Line], name: str) -> list[Line]:
    """Read a file with a line of JSON for each trial, in their order; empty if there is no file.

    The beginning of a last line, which a crash left, is ignored; a whole one without a line break counts. Raises
    BadInputError if another line is not `name`.
    """
    lines: list[Line] = []
    for number, line in enumerate(_read_whole_lines(path, kind).splitlines(), 1):
        try:
            lines.append(kind.model_validate_json(line))
        except ValidationError:
            valid = "delete the line, and its trial is repeated"
            raise BadInputError(f"{path}: line {number} is not {name} (valid: {valid})") from None
    return lines


def _read_whole_lines(path: Path, kind: type[BaseModel]) -> bytes:
    """Read the whole lines of a file, each with a line break."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None
    whole = content[: content.rfind(b"\n") + 1]
    try:
        kind.model_validate_json(content[len(whole) :])
    except ValidationError:
        return whole
    return content + b"\n"


def index_results(results: Sequence[TrialResult]) -> dict[str, TrialResult]:
    """Return the trials that need no other run, by key: they are done or have diverged."""
    return {result.key: result for result in results if result.outcome != "failed"}


def append_result(path: Path, result: TrialResult) -> None:
    """Append the result of a trial, as `append_line` does, without the directories of paths in its message."""
    append_line(path, result.model_copy(update={"message": shorten_paths(result.message)}))


def append_line(path: Path, line: BaseModel) -> None:
    """Append a line, in place of the beginning of one, which a crash left. Raises CommandError if it cannot."""
    try:
        if not _ends_with_whole_line(path):
            write_atomically(path, _read_whole_lines(path, type(line)))
        with path.open("ab") as file:
            file.write(line.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        # The file may be new.
        sync_directory(path.parent)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}; the same command continues once it can be written") from None


def _ends_with_whole_line(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


class _Asked(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    trials: list[TrialNames]


def write_asked(directory: Path, trials: Iterable[TrialNames]) -> None:
    """Write the trials that count. Raises BadInputError if it cannot."""
    write_output(directory / ASKED_FILE_NAME, _Asked(trials=list(trials)).model_dump_json(indent=1) + "\n")


def read_asked(directory: Path) -> list[TrialNames] | None:
    """Read the trials that count; None if there is no file. Raises BadInputError for a file of another kind."""
    path = directory / ASKED_FILE_NAME
    try:
        return _Asked.model_validate_json(path.read_bytes()).trials
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None
    except ValidationError:
        valid = "as `dlrm sweep` writes it, also where nothing is left to train; without the file all results count"
        raise BadInputError(f"{path}: has no list of trials (valid: {valid})") from None
