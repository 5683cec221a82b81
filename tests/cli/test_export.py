"""`dlrm export`, and `dlrm evaluate --checkpoint`: what they refuse before a program is started."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import JobConfig, resolve
from dlrm.record import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run without a checkpoint."""
    directory = RunDirectory(tmp_path / "run")
    directory.checkpoints.mkdir(parents=True)
    directory.spec.write_text(resolve(JobConfig.model_validate({"data": {"format": "synthetic"}})).model_dump_json())
    return directory


def test_what_is_no_run_is_refused(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    for arguments in (("export", tmp_path, "-o", tmp_path / "new"), ("evaluate", tmp_path, "--checkpoint", "newest")):
        ended = dlrm(*map(str, arguments))
        assert ended.code == 2
        assert f"{tmp_path}: not the directory of a run" in ended.err


def test_an_existing_directory_is_not_overwritten(run: RunDirectory, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("export", str(run.path), "--output", str(run.path))
    assert ended.code == 2
    assert f"--output {run.path}: already exists (valid: a new directory)" in ended.err


def test_a_run_without_a_model_hints_at_its_checkpoints(run: RunDirectory, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("evaluate", str(run.path))
    assert ended.code == 2
    assert "is the directory of a run without a model (valid: --checkpoint newest)" in ended.err


def test_the_fault_that_the_program_finds_is_one_line(run: RunDirectory, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("export", str(run.path), "--output", str(run.path / "out"))
    assert ended.code == 2
    assert ended.err == (
        f"error: --checkpoint: {run.checkpoints} has no complete checkpoint (valid: a run that has one)\n"
    )
