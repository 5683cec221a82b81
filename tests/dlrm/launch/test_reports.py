"""Files that an attempt names at its end."""

from pathlib import Path
from typing import Any

import pytest

from dlrm.launch.reports import find_left_files
from dlrm.record import AttemptDirectory, CheckpointReport, EventReport, SpoolWriter

RUN, BUCKET = "/runs/job", "s3://bucket/runs/job"


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptDirectory:
    attempt = AttemptDirectory(tmp_path / "attempt-1")
    attempt.create()
    return attempt


def tell(attempt: AttemptDirectory, name: str, rank: int = 0, **details: Any) -> None:
    writer = SpoolWriter(attempt.spool_file(rank, "events"))
    writer.write(EventReport(name=name, message=name, details=details))
    writer.close()


def make_checkpoint(step: int, run: str = RUN) -> CheckpointReport:
    path = f"{run}/checkpoints/step-{step:08d}"
    return CheckpointReport(
        step=step, num_samples=step, num_steps=100, num_bytes=1, world_size=2, time=1.8e9, path=path
    )


def tell_model(attempt: AttemptDirectory, name: str, run: str) -> None:
    tell(attempt, name, path=f"{run}/model", num_bytes=1, num_files=1, files=[{"name": "a", "num_bytes": 1}])


def test_an_attempt_that_has_said_nothing_has_left_nothing(attempt: AttemptDirectory):
    assert find_left_files(attempt) == (None, None)
    attempt.spool_file(0, "events").write_text("{\n[]\n")
    assert find_left_files(attempt) == (None, None)


def test_the_newest_checkpoint_that_is_left_counts_and_the_model(attempt: AttemptDirectory):
    for step in (5, 15, 10):
        tell(attempt, "checkpoint_saved", **make_checkpoint(step).model_dump(), seconds=1.5)
    assert find_left_files(attempt) == (None, make_checkpoint(15))
    tell(attempt, "checkpoints_removed", steps=[15, 77])
    tell_model(attempt, "model_saved", RUN)
    assert find_left_files(attempt) == (f"{RUN}/model", make_checkpoint(10))


def test_of_a_run_in_a_bucket_only_what_was_uploaded_counts(attempt: AttemptDirectory):
    tell(attempt, "checkpoint_saved", step=10, num_bytes=1, seconds=1.5)
    assert find_left_files(attempt) == (None, None)
    tell(attempt, "uploaded", **make_checkpoint(10, BUCKET).model_dump(), seconds=1.5)
    tell_model(attempt, "uploaded", BUCKET)
    assert find_left_files(attempt) == (f"{BUCKET}/model", make_checkpoint(10, BUCKET))


def test_other_ranks_tell_of_no_files(attempt: AttemptDirectory):
    tell(attempt, "checkpoint_saved", rank=1, **make_checkpoint(10).model_dump())
    assert find_left_files(attempt) == (None, None)
