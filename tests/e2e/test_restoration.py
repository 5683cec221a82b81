"""A service whose database is lost while real ranks train: restored from a backup, it finds the job again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.demo.service_process import run_service
from tests.e2e.launching import ONE_RANK
from tests.e2e.test_jobs import MODEL, SYNTHETIC
from tests.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def run(state_directory: Path, *arguments: str) -> None:
    """Run a `dlrm` command on a state directory."""
    command = [sys.executable, "-m", "cli", *arguments, "--state-directory", str(state_directory)]
    ended = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_job_that_trains_through_a_restoration_succeeds_with_its_whole_curve(tmp_path: Path) -> None:
    state, target = tmp_path / "state", tmp_path / "backup"
    settings = {"DLRM_NUM_CORES": "1", "DLRM_DATA_ROOTS": str(tmp_path)}
    document = {
        "data": SYNTHETIC,
        "model": MODEL,
        "batch": {"global_size": 2048},
        "resources": ONE_RANK,
        # It trains for longer than the restoration takes, on a machine that is not very fast.
        "run": {"epochs": 30},
    }
    with run_service(state, settings) as client:
        job_id = client.submit(document).id
        wait_until(lambda: client.job(job_id).progress.step)
        run(state, "backup", str(target))
    for name in ("service.sqlite3", "service.sqlite3-wal", "service.sqlite3-shm"):
        (state / name).unlink(missing_ok=True)
    run(state, "restore", str(target))
    with run_service(state, settings) as client:
        *_, job = client.follow(job_id)
        assert (job.state, job.num_attempts) == ("SUCCEEDED", 1), job.message
        steps = [point.step for point in client.metrics(job_id, kind="step")]
        assert steps == list(range(1, (job.progress.num_steps or 0) + 1))
