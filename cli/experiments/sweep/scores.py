"""Scores of the evaluation rows, copied from the directories of runs to that of the sweep."""

import os
import shutil
from pathlib import Path

from cli.experiments.sweep.results import KeptScores
from cli.local.errors import BadInputError
from dlrm.record import RunDirectory, ScoresRecord, sync_directory

DIRECTORY = "scores"
"""Name of the directory of the scores, beside the results."""
CHECKSUM_LETTERS = 12
"""Letters of the checksum in the names of files that trials on the same rows share."""


def copy_scores(key: str, run: RunDirectory, output: Path) -> KeptScores | None:
    """Copy the scores of a run to the directory `output` of its sweep; None if the run has kept none.

    key: that of the trial, which names the file. Raises BadInputError if they cannot be written.
    """
    record = ScoresRecord.read(run.scores.record)
    if record is None:
        return None
    rows = f"{DIRECTORY}/rows-{record.checksum[:CHECKSUM_LETTERS]}"
    kept = KeptScores(
        logits=f"{DIRECTORY}/{key}.npy",
        labels=f"{rows}.labels.npy",
        weights=f"{rows}.weights.npy" if record.is_weighted else None,
        checksum=record.checksum,
        num_rows=record.num_rows,
    )
    try:
        (output / DIRECTORY).mkdir(exist_ok=True)
        _copy(run.scores.logits(record.step), output / kept.logits)
        # The same for all trials with this checksum.
        if not (output / kept.labels).exists():
            _copy(run.scores.labels, output / kept.labels)
        if kept.weights is not None and not (output / kept.weights).exists():
            _copy(run.scores.weights, output / kept.weights)
        sync_directory(output / DIRECTORY)
    except FileNotFoundError:
        # The run has lost them, and said so.
        return None
    except OSError as error:
        raise BadInputError(f"{output / DIRECTORY}: {error.strerror}") from None
    return kept


def _copy(source: Path, target: Path) -> None:
    """Copy a file so that it is there whole or not at all, also after a crash."""
    part = target.with_suffix(".part")
    try:
        with source.open("rb") as read, part.open("wb") as written:
            shutil.copyfileobj(read, written)
            written.flush()
            os.fsync(written.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
