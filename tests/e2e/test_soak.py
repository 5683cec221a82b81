"""What takes minutes: a service that is killed again and again while its jobs train."""

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cli.demo.service_process import run_service
from service.client import Client

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

NUM_KILLS = 12
DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 100_000, "num_ids": 1000}},
    "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
    "batch": {"global_size": 2048},
    "dense_optimizer": {"name": "adam", "learning_rate": 0.001},
    "run": {"epochs": 10, "yardsticks": "none"},
    "resources": {"workers_per_node": 1, "memory": "2GiB"},
}


@contextmanager
def service(state_directory: Path) -> Iterator[Client]:
    with run_service(state_directory, {"DLRM_NUM_CORES": "2"}) as client:
        yield client


def kill_service(state_directory: Path) -> None:
    """SIGKILL to the one that serves this directory, and to nothing it started."""
    for child in psutil.Process().children():
        if child.environ().get("DLRM_STATE_DIRECTORY") == str(state_directory):
            child.send_signal(signal.SIGKILL)


def test_a_service_killed_again_and_again_loses_no_job_and_no_report(tmp_path: Path):
    chance = random.Random(1)
    with service(tmp_path) as client:
        jobs = [client.submit({**DOCUMENT, "name": f"job-{number}"}).id for number in range(4)]
    for _ in range(NUM_KILLS):
        with service(tmp_path):
            time.sleep(chance.uniform(0.0, 3.0))
            kill_service(tmp_path)
    with service(tmp_path) as client:
        for job_id in jobs:
            ended = list(client.follow(job_id))[-1]
            assert (ended.state, ended.num_attempts) == ("SUCCEEDED", 1), ended
            steps = [metric.step for metric in client.metrics(job_id, kind="step")]
            assert steps == list(range(1, ended.progress.num_steps + 1))
            assert len(list(client.metrics(job_id, kind="evaluation"))) == 10
    assert subprocess.run(["pgrep", "-f", str(tmp_path)], check=False, stdout=subprocess.DEVNULL).returncode == 1
