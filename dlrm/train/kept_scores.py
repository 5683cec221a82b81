"""Scores of the evaluation rows, which rank 0 of a run keeps where the job asks for them."""

import hashlib
import logging
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrm.record import SCORES_LOST, ScoresDirectory, ScoresRecord
from dlrm.reporting.reporter import Reporter
from dlrm.train.evaluator import Scores

log = logging.getLogger(__name__)


def keep_scores(directory: ScoresDirectory, reporter: Reporter, step: int, scores: Scores) -> None:
    """Write the scores of the evaluation after `step` batches, beside the scores of earlier ones: which model the run
    leaves is known only at its end. A failure is reported, and never raised: the run is worth more than its scores.
    """
    try:
        directory.path.mkdir(exist_ok=True)
        for path, rows in ((directory.labels, scores.labels), (directory.weights, scores.weights)):
            if rows is not None and not path.exists():
                _write_array(path, rows)
        _write_array(directory.logits(step), scores.logits)
    except OSError as error:
        _report_lost(reporter, f"those of step {step:,} could not be written: {error.strerror}")


def choose_scores(directory: ScoresDirectory, reporter: Reporter, step: int) -> None:
    """Keep the scores of the model that the run leaves, after `step` batches, with a record, and remove the others."""
    try:
        if not directory.logits(step).exists():
            _report_lost(reporter, f"there are none of step {step:,}, whose model is kept")
            return
        labels = np.load(directory.labels)
        weights = np.load(directory.weights) if directory.weights.exists() else None
        record = ScoresRecord(
            step=step,
            num_rows=len(labels),
            is_weighted=weights is not None,
            checksum=_compute_checksum(labels, weights),
        )
        record.write(directory.record)
        for path in directory.path.glob("step-*.npy"):
            if path != directory.logits(step):
                path.unlink()
    except (OSError, ValueError) as error:
        _report_lost(reporter, str(error))


def _report_lost(reporter: Reporter, reason: str) -> None:
    log.warning("the scores of the evaluation rows are not kept: %s", reason)
    reporter.event(SCORES_LOST, f"the scores of the evaluation rows are not kept: {reason}")


def _compute_checksum(labels: NDArray[np.float32], weights: NDArray[np.float32] | None) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(labels, dtype=np.float32).data)
    if weights is not None:
        digest.update(np.ascontiguousarray(weights, dtype=np.float32).data)
    return digest.hexdigest()


def _write_array(path: Path, array: NDArray[np.float32]) -> None:
    """Write an array whole or not at all, straight from its memory."""
    part = path.with_suffix(".part")
    try:
        with part.open("wb") as file:
            np.save(file, array.astype(np.float32, copy=False))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
