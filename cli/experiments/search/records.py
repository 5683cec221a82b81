"""Record of a tuning, in its directory: what it tunes, and each trial that has finished."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from cli.local.errors import BadInputError
from cli.local.outputs import write_output
from dlrm.record import EndReason, OutcomeState, RunDirectory

UNTUNED = 0
"""Number of the trial with the settings that the job has without tuning."""


class TrialRecord(BaseModel):
    """A run of one trial that has ended, one line of `trials.jsonl`; of two lines of one run the later counts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trial: int
    """Number of the trial; 0 is the untuned job."""
    rung: int
    """Number of the rung, from 0, which has the shortest runs."""
    fraction: float
    """Share of the job's epochs that the run had."""
    settings: dict[str, Any]
    """Values of the tuned fields, by dotted path in the job document."""
    state: OutcomeState
    reason: EndReason
    message: str = ""
    """Error of a run that failed, in one line."""
    validation_log_loss: float | None = None
    """Log-loss on the validation rows, by which trials are chosen; null if the run failed."""
    auc: float | None = None
    """Area under the ROC curve on the evaluation rows, which choose nothing."""
    auc_standard_error: float | None = None
    """Standard error of the AUC, by the choice of the evaluation rows."""
    log_loss: float | None = None
    """Log-loss on the evaluation rows."""
    data_checksum: str | None = None
    """Checksum of the rows of the run; null for a synthetic log, and in records of earlier versions."""
    num_steps: int | None = None
    """Number of batches that the run trained on."""
    seconds: float
    """Seconds of the run, without the preparation of data; of the last attempt after an interruption."""

    @property
    def key(self) -> str:
        """Name of the run."""
        return name_run(self.trial, self.fraction)

    @property
    def is_retryable(self) -> bool:
        """Whether the same run may end otherwise once its cause is mended, such as a full disk or too little memory."""
        is_repeatable = self.reason.is_retried or self.reason is EndReason.OUT_OF_MEMORY or self.trial == UNTUNED
        return self.state == "failed" and is_repeatable


def name_run(trial: int, fraction: float) -> str:
    """Name the run of a trial with this share of the job's epochs."""
    return "untuned" if trial == UNTUNED else f"trial-{trial}-of-{100 * fraction:.0f}-percent"


@dataclass(frozen=True)
class TuningDirectory:
    """Directory of one tuning."""

    path: Path

    @property
    def trials(self) -> Path:
        """File with a line of JSON for each run of a trial that has ended."""
        return self.path / "trials.jsonl"

    @property
    def best(self) -> Path:
        """Job document with the settings of the best trial."""
        return self.path / "best.toml"

    @property
    def runs(self) -> Path:
        """Directory of the run directories."""
        return self.path / "runs"

    def run(self, key: str) -> RunDirectory:
        """Return the directory of a run. key: its name."""
        return RunDirectory((self.runs / key).resolve())

    def open(self, document: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        """Create the directory for a tuning of `document`, or check that it belongs to the same one.

        search: settings of the search by name. Raises BadInputError if it belongs to another one.
        """
        contents = {"untuned.json": document, "search.json": search}
        for name, content in contents.items():
            path = self.path / name
            if path.exists() and json.loads(path.read_bytes()) != content:
                what = "job document" if content is document else "seed, or without the same --all"
                valid = "the same command to continue, or another --output"
                raise BadInputError(f"{self.path}: has trials of another {what} (valid: {valid})")
            write_output(path, json.dumps(content, indent=1))
