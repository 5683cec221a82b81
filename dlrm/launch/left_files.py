"""Files that an attempt has left and that count, as its events tell."""

import logging
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dlrm.record import (
    CHECKPOINT_SAVED,
    CHECKPOINTS_REMOVED,
    MODEL_SAVED,
    UPLOADED,
    AttemptDirectory,
    CheckpointReport,
    EventReport,
    ModelReport,
    RemovedCheckpoints,
    SpoolReader,
    parse_report,
)

log = logging.getLogger(__name__)

Details = TypeVar("Details", bound=BaseModel)


@dataclass(frozen=True)
class LeftFiles:
    """Files that an attempt has left."""

    model_path: str | None = None
    """Directory of the model, or its URI; None if absent."""
    checkpoint: CheckpointReport | None = None
    """Newest checkpoint; None if absent."""


def find_left_files(attempt: AttemptDirectory) -> LeftFiles:
    """Find the model and the newest checkpoint of an attempt, as the service does that gets all events of rank 0.

    In a run that is kept in a bucket, only what has been uploaded counts.
    """
    model_path: str | None = None
    checkpoints: dict[int, CheckpointReport] = {}
    for event in _read_events(attempt):
        if event.name in (CHECKPOINT_SAVED, UPLOADED) and (saved := _parse(CheckpointReport, event)) is not None:
            checkpoints[saved.step] = saved
        if event.name == CHECKPOINTS_REMOVED and (removed := _parse(RemovedCheckpoints, event)) is not None:
            for step in removed.steps:
                checkpoints.pop(step, None)
        if event.name in (MODEL_SAVED, UPLOADED) and (model := _parse(ModelReport, event)) is not None:
            model_path = model.path
    return LeftFiles(model_path, checkpoints[max(checkpoints)] if checkpoints else None)


def _read_events(attempt: AttemptDirectory) -> list[EventReport]:
    try:
        lines = SpoolReader(attempt.spool_file(0, "events")).read(max_lines=10**9)
    except OSError as error:
        log.warning("the end is told without the files of the run: %s", error)
        return []
    events: list[EventReport] = []
    for line in lines:
        try:
            report = parse_report(line)
        except ValidationError:
            continue
        if isinstance(report, EventReport):
            events.append(report)
    return events


def _parse(kind: type[Details], event: EventReport) -> Details | None:
    try:
        return kind.model_validate(event.details)
    except ValidationError:
        return None
