"""Two processes that resume the same run at once: one goes on, as it was told itself, and the other changes nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import JobConfig, ResolvedJob, resolve
from dlrm.record import EvaluationReport, RunDirectory
from tests.e2e.launching import TINY, reports_of
from tests.patience import PATIENCE_SECONDS

NUM_EVALUATIONS = (2, 4)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """Of a run whose first attempt was killed before its first step."""
    directory = RunDirectory(tmp_path / "run")
    directory.attempt(1).create()
    directory.spec.write_text(resolve(JobConfig.model_validate(TINY)).model_dump_json())
    return directory


@pytest.fixture
def jobs(tmp_path: Path) -> list[Path]:
    """The same job, evaluated twice and four times."""
    return [write_job(tmp_path / f"{number}.json", {"eval_every_fraction": 1 / number}) for number in NUM_EVALUATIONS]


def write_job(path: Path, run: dict[str, Any]) -> Path:
    path.write_text(json.dumps({**TINY, "run": run}))
    return path


def told(directory: RunDirectory) -> float:
    """The interval of evaluations that the run's document has."""
    return ResolvedJob.model_validate_json(directory.spec.read_bytes()).job.run.eval_every_fraction


def num_evaluations(directory: RunDirectory, attempt: int) -> int:
    return sum(isinstance(report, EvaluationReport) for report in reports_of(directory, "metrics", attempt))


@pytest.mark.slow
def test_of_two_commands_at_once_one_trains_and_the_other_says_that_it_cannot(
    directory: RunDirectory, jobs: list[Path]
):
    commands = [[sys.executable, "-m", "cli", "resume", str(directory.path), str(job)] for job in jobs]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for command in commands]
    said = [process.communicate(timeout=PATIENCE_SECONDS)[0].decode() for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, 1], said
    winner = codes.index(0)
    assert "in use by process" in said[1 - winner]
    (attempt,) = (path for path in directory.path.glob("attempt-*") if (path / "outcome.json").exists())
    assert num_evaluations(directory, int(attempt.name.removeprefix("attempt-"))) == NUM_EVALUATIONS[winner]
    assert told(directory) == 1 / NUM_EVALUATIONS[winner]
