"""A rank of a job is killed or frozen under a real service: it goes on from a checkpoint, and no figure tells of it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.demo.service_process import run_service
from service.client import Client, Job
from service.launchers.processes import find_marked
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 160_000, "num_ids": 500}},
    "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
    "batch": {"global_size": 1024},
    "run": {
        "epochs": 2,
        "eval_every_fraction": 0.25,
        "checkpoint_every_seconds": 0.5,
        "yardsticks": "none",
        "peer_timeout_seconds": 5,
    },
    "dense_optimizer": {"name": "adam", "learning_rate": 0.001},
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = {"DLRM_NUM_CORES": "2", "DLRM_RESTART_DELAY_SECONDS": "0.2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
    with run_service(tmp_path_factory.mktemp("state"), settings) as client:
        yield client


@pytest.fixture(scope="module")
def undisturbed(client: Client) -> Job:
    return end_of(client, client.submit(DOCUMENT))


def end_of(client: Client, job: Job) -> Job:
    for seen in client.follow(job.id):
        job = seen
    assert job.state == "SUCCEEDED", job.message
    return job


def strike_a_rank_after_a_checkpoint(client: Client, job: Job, blow: signal.Signals) -> int:
    """Send a signal to one of the ranks once steps have followed a checkpoint; that checkpoint's step."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert time.monotonic() < deadline
        saved = next(client.checkpoints(job.id), None)
        seen = client.job(job.id)
        assert not seen.has_ended, "it ended too early"
        if saved and (seen.progress.step or 0) > saved.step:
            break
        time.sleep(0.05)
    ranks = [process for process in find_marked(Path(seen.run_directory or "", "attempt-1")) if is_rank(process)]
    assert len(ranks) == seen.world_size
    os.kill(ranks[-1].pid, blow)
    return saved.step


def is_rank(process: psutil.Process) -> bool:
    return "dlrm.train.worker" in process.cmdline()


def losses(client: Client, job: Job) -> dict[int, float | None]:
    metrics = list(client.metrics(job.id, kind="step"))
    assert [metric.step for metric in metrics] == list(range(1, (job.progress.num_steps or 0) + 1))
    return {metric.step: metric.loss for metric in metrics if metric.kind == "step"}


def evaluations(client: Client, job: Job) -> dict[int, float | None]:
    metrics = list(client.metrics(job.id, kind="evaluation"))
    return {metric.step: metric.auc for metric in metrics if metric.kind == "evaluation"}


@pytest.mark.parametrize(("blow", "reason"), [(signal.SIGKILL, "worker_crashed"), (signal.SIGSTOP, "peer_silent")])
def test_a_job_whose_rank_was_killed_or_frozen_ends_as_if_nothing_had_happened(
    client: Client, undisturbed: Job, blow: signal.Signals, reason: str
) -> None:
    job = client.submit(DOCUMENT)
    saved_step = strike_a_rank_after_a_checkpoint(client, job, blow)
    job = end_of(client, job)
    assert job.num_attempts == 2
    first, second = client.attempts(job.id)
    assert (first.reason, second.reason) == (reason, "completed")
    assert f"rank {job.world_size - 1} " in (first.message or "")
    assert second.start_step == first.saved_step
    assert (second.start_step or 0) >= saved_step
    assert losses(client, job) == losses(client, undisturbed)
    assert evaluations(client, job) == evaluations(client, undisturbed)
    assert len(evaluations(client, job)) == 4
    assert job.metrics["auc"] == undisturbed.metrics["auc"]
    said = [metric.step for metric in client.metrics(job.id, kind="step", attempt=1)]
    assert said == list(range(1, len(said) + 1))
    assert len(said) > saved_step
