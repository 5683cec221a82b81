"""Trials that count by the document of a sweep, beside its results, which earlier documents added to."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from cli.experiments.sweep.results import TrialNames
from cli.experiments.sweep.trials import Trial
from cli.local.errors import BadInputError
from dlrm.record import write_atomically

ASKED_FILE_NAME = "asked.json"
"""Name of the file with the trials, in the directory of the sweep."""


class AskedTrial(TrialNames):
    """Trial that counts, as the present document names it: the line of its result may have names of an earlier one."""

    @classmethod
    def from_trial(cls, trial: Trial) -> "AskedTrial":
        return cls.model_validate(trial, from_attributes=True)

    def list_names(self) -> dict[str, Any]:
        """List the names of the trial, by field of its result."""
        return self.model_dump(exclude={"key"})


class _Asked(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    trials: list[AskedTrial]


def write_asked(directory: Path, trials: Iterable[AskedTrial]) -> None:
    """Write the trials that count. Raises BadInputError if it cannot."""
    path = directory / ASKED_FILE_NAME
    try:
        write_atomically(path, _Asked(trials=list(trials)).model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None


def read_asked(directory: Path) -> list[AskedTrial] | None:
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
