"""Jobs submitted to a real service and trained by real ranks: how they end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.demo.service_process import run_service
from service.client import Client, Job
from tests.e2e.launching import ONE_RANK

pytestmark = pytest.mark.slow

MODEL = {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]}
SYNTHETIC = {"format": "synthetic", "synthetic": {"num_rows": 40_000, "num_ids": 500}}


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Iterator[Client]:
    settings = {"DLRM_NUM_CORES": "2", "DLRM_DATA_ROOTS": str(data_root)}
    with run_service(tmp_path_factory.mktemp("state"), settings) as client:
        yield client


def end_of(client: Client, document: dict[str, Any]) -> Job:
    """Submit a job of one rank, and return it as it ended."""
    job = client.submit({"model": MODEL, "batch": {"global_size": 2048}, "resources": ONE_RANK, **document})
    for seen in client.follow(job.id):
        job = seen
    return job


def test_a_job_whose_loss_is_not_finite_fails_as_diverged_and_tells_every_dropped_step(client: Client):
    optimizer = {"name": "sgd", "learning_rate": 1e6}
    job = end_of(client, {"data": SYNTHETIC, "dense_optimizer": optimizer, "run": {"eval_every_fraction": 1.0}})
    assert (job.state, job.reason, job.num_attempts) == ("FAILED", "diverged", 1)
    assert "not finite in 3 steps in a row" in job.message
    assert "dense_optimizer.learning_rate" in job.message
    dropped = [event for event in client.events(job.id) if event.name == "step_dropped"]
    assert len(dropped) == 3
    assert [step.step for step in client.metrics(job.id, kind="step") if step.dropped] == [
        event.details["step"] for event in dropped
    ]


def test_a_client_asks_what_a_job_has_too_little_of_before_it_submits_it(client: Client):
    document = {"data": {"format": "synthetic", "synthetic": {"num_rows": 1000}}, "batch": {"global_size": 2048}}
    warnings = client.plan(document).warnings
    assert warnings is not None
    assert [warning.split(",")[0] for warning in warnings[:1]] == ["an epoch has 810 training rows"]
    assert "100 evaluation rows" in warnings[-1]


def test_the_defaults_train(client: Client):
    job = client.submit({"data": {"format": "synthetic", "synthetic": {"num_rows": 6000}}})
    job = list(client.follow(job.id))[-1]
    assert job.state == "SUCCEEDED", job.message
    losses = [step.loss for step in client.metrics(job.id, kind="step")]
    assert losses[-1] < losses[0]
    assert job.metrics["log_loss"] < job.metrics["constant_log_loss"]
