"""Advice on jobs that real ranks have trained, from what they have measured."""

from collections.abc import Iterator
from typing import Any

import pytest

from cli.demo.service_process import run_service
from dlrm.record import BATCH_ADVICE
from service.client import Client, JobAdvice, JobDetails
from tests.patience import wait_until

pytestmark = pytest.mark.slow

MODEL = {"architecture": "dlrm", "embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]}
LARGE_BATCH: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 200_000, "num_ids": 50, "seed": 2}},
    "model": MODEL,
    "batch": {"global_size": 8192},
    "dense_optimizer": {"learning_rate": 0.001},
    "run": {"epochs": 2, "yardsticks": "none"},
    "moments": {"every": 1, "fraction": 1.0},
    "resources": {"workers_per_node": 1, "memory": "2GiB"},
}
UNEVEN: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 60_000, "num_ids": 2000, "seed": 2}},
    "model": {"architecture": "dlrm", "embedding_dim": 64, "bottom_mlp": [8, 64], "top_mlp": [8, 1]},
    "batch": {"global_size": 1024},
    "sharding": {"transport": "network", "tables": [{"pattern": "C*", "type": "table_wise", "ranks": [0]}]},
    "run": {"epochs": 1, "yardsticks": "none"},
    "resources": {"workers_per_node": 2, "memory": "3GiB"},
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with run_service(tmp_path_factory.mktemp("state"), {"DLRM_NUM_CORES": "2"}) as client:
        yield client


def train(client: Client, document: dict[str, Any]) -> JobDetails:
    job = list(client.follow(client.submit(document).id))[-1]
    assert job.state == "SUCCEEDED", job.message
    return job


def test_a_run_far_above_its_noise_scale_is_told_how_many_samples_it_wastes(client: Client) -> None:
    job = train(client, LARGE_BATCH)
    noise_scale, num_samples = job.metrics["noise_scale"], job.metrics["num_samples"]
    assert noise_scale is not None
    assert num_samples is not None
    items = {item.name: item for item in client.advice(job.id).items}
    found = items["batch_above_noise"]
    changes = {change.field: change.value for change in found.changes}
    advised = changes["batch.global_size"]
    assert found.gain is not None
    # E / Emin = 1 + B / N.
    expected = (1 + advised / noise_scale) / (1 + 8192 / noise_scale)
    assert found.gain.value == pytest.approx(num_samples * (1 - expected), rel=1e-6)
    assert changes["run.epochs"] == pytest.approx(2 * expected, rel=0.01)
    assert advised == job.metrics["largest_useful_batch"]
    assert f"{8192 / noise_scale:.2g} times the noise scale" in found.message
    assert any(event.name == BATCH_ADVICE for event in client.events(job.id))


def test_a_plan_that_puts_all_tables_on_one_rank_is_compared_with_the_automatic_one(client: Client) -> None:
    job = train(client, UNEVEN)

    def ask() -> JobAdvice | None:
        advice = client.advice(job.id)
        return None if advice.is_comparing else advice

    items = {item.name: item for item in wait_until(ask).items}
    found = items["ranks_uneven"]
    assert "the automatic plan" in found.message
    assert found.gain is not None
    assert found.gain.value > 0
    assert {change.field: change.value for change in found.changes} == {"sharding.plan": "auto", "sharding.tables": []}
