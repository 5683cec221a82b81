"""Reports to a service that may not see the run directory: its address, the files of a run, the end of an attempt."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from dlrm.record.checkpoints import CheckpointManifest
from dlrm.record.files import OpenRecord
from dlrm.record.outcome import Outcome, RankEnd

FILE_REPORTS_VARIABLE = "DLRM_FILE_REPORTS"
"""Environment variable with the value 1 where ranks and uploads report the files that they have written."""
Place = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]+$")]
"""Type of a path or URI that a database can store."""
MAX_MODEL_FILES = 100
"""Largest number of files of a model that are listed."""
CUT_MARK = " …"
"""Mark at the end of a text that was cut."""
MAX_SHORT_PLACE_BYTES = 1000
"""Largest size of a place as JSON in the short form of an end. A longer one is left out, since a part of it is of no
use."""


class PushTarget(OpenRecord):
    """Address of the service for the reports of one attempt, and its token: `push.json`; secret."""

    url: str
    token: str = Field(repr=False)
    shares_files: bool = True
    """Whether the service sees the run directory; otherwise logs and the outcome are pushed too."""

    @classmethod
    def read(cls, path: Path) -> "PushTarget":
        """Read the target at `path`. Raises OSError, and ValueError if it is not whole."""
        return cls.model_validate_json(path.read_bytes())


def are_files_reported() -> bool:
    """Whether the processes of this attempt report the files that they have written."""
    return os.environ.get(FILE_REPORTS_VARIABLE) == "1"


class CheckpointReport(OpenRecord):
    """A complete checkpoint, in the details of `checkpoint_saved`, or of `uploaded` where the run is in a bucket."""

    step: int = Field(ge=0, lt=2**63)
    num_samples: int = Field(ge=0, lt=2**63)
    num_steps: int = Field(ge=0, lt=2**63)
    num_bytes: int = Field(ge=0, lt=2**63)
    world_size: int = Field(ge=1, lt=2**31)
    time: float
    """Time of completion, in seconds since the epoch."""
    path: Place
    """Directory of the checkpoint, or its URI in the bucket of the run."""

    @classmethod
    def from_manifest(cls, manifest: CheckpointManifest, path: str) -> "CheckpointReport":
        return cls(**manifest.model_dump(exclude={"files"}), num_bytes=manifest.num_bytes, path=path)


class RemovedCheckpoints(OpenRecord):
    """Checkpoints that are gone, in the details of `checkpoints_removed`."""

    steps: list[int] = Field(max_length=1000)


class ModelFile(OpenRecord):
    """One file of a model."""

    name: str
    num_bytes: int


class ModelReport(OpenRecord):
    """The model of a run, in the details of `model_saved`, or of `uploaded` where the run is in a bucket."""

    path: Place
    """Directory of the model, or its URI in the bucket of the run."""
    num_bytes: int
    """Size of all files."""
    num_files: int
    files: list[ModelFile]
    """Files by their names in the model's directory, the first MAX_MODEL_FILES of them."""


def make_model_report(directory: Path, place: str) -> ModelReport:
    """List the files of the model in `directory`. place: path or URI at which the model is. Raises OSError."""
    files = [
        ModelFile(name=path.relative_to(directory).as_posix(), num_bytes=path.stat().st_size)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    ]
    num_bytes = sum(file.num_bytes for file in files)
    return ModelReport(path=place, num_bytes=num_bytes, num_files=len(files), files=files[:MAX_MODEL_FILES])


class AttemptEnd(OpenRecord):
    """Outcome of an attempt, with the ends of the ranks that failed: the one line of the stream `outcome`.

    It also names the files that count, for a service without the events about them.
    """

    outcome: Outcome
    rank_ends: list[RankEnd] = Field(default=[])
    model_path: Place | None = None
    """Directory of the model that the attempt has left, or its URI; None if it has left none."""
    checkpoint: CheckpointReport | None = None
    """Newest checkpoint that the attempt has left; None if it has left none."""

    def format_within(self, max_bytes: int) -> str:
        """Format the end as JSON of at most `max_bytes` bytes; at least 3,000 are needed.

        If it is longer, places that are too long are left out first, then metrics, then the ends of ranks, and at
        last the message is cut.
        """
        *longer, bare = self._list_shorter()
        for end in longer:
            text = end._format()
            if len(text.encode()) <= max_bytes:
                return text
        text, message = bare._format(), bare.outcome.message
        while len(text.encode()) > max_bytes and message:
            message = message[: len(message) * 3 // 4]
            outcome = bare.outcome.model_copy(update={"message": message + CUT_MARK})
            text = bare.model_copy(update={"outcome": outcome})._format()
        return text

    def _list_shorter(self) -> Iterator["AttemptEnd"]:
        """List the forms of this end; each leaves out more than the one before."""
        yield self
        places: dict[str, None] = {}
        if self.model_path is not None and _is_long(self.model_path):
            places["model_path"] = None
        if self.checkpoint is not None and _is_long(self.checkpoint.path):
            places["checkpoint"] = None
        short = self.model_copy(update=places)
        yield short
        outcome = self.outcome.model_copy(update={"metrics": {}})
        yield short.model_copy(update={"outcome": outcome})
        yield short.model_copy(update={"outcome": outcome, "rank_ends": []})

    def _format(self) -> str:
        absent = {name for name in ("model_path", "checkpoint") if getattr(self, name) is None}
        return self.model_dump_json(exclude=absent)


def _is_long(place: str) -> bool:
    return len(json.dumps(place)) > MAX_SHORT_PLACE_BYTES
