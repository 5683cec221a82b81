"""What large-batch jobs are made of, each over REST: optimizers, models, schedules, estimators, controls."""

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

from cli.demo.service_process import run_service
from dlrm.record import BATCH_ADVICE, BatchAdvice
from service.client import Client, Job, ServiceError

pytestmark = pytest.mark.slow

SYNTHETIC = {"format": "synthetic", "synthetic": {"num_rows": 60_000, "num_ids": 500}}
DENSE = [{"name": "x"}, {"name": "y"}]
CATEGORICAL = [{"name": "site"}, {"name": "tags", "type": "integer", "multi_hot": True}]
DLRM = {"embedding_dim": 8, "bottom_mlp": [32, 8], "top_mlp": [32, 16, 1]}
DCN = {**DLRM, "architecture": "dcn_v2", "cross_layers": 2, "cross_rank": 16}
TABLES = {"name": "rowwise_adagrad", "learning_rate": 0.05}


def csv_of(**columns: Any) -> dict[str, Any]:
    return {"train": ["rows.csv"], "format": "csv", "schema": columns}


def schedule(decay: str, scaling: str) -> dict[str, Any]:
    return {"decay": decay, "scaling": scaling, "base_batch": 512, "warmup_fraction": 0.1}


def on_two_ranks(averaging: dict[str, Any], optimizer: str, rate: float) -> dict[str, Any]:
    return {
        "data": SYNTHETIC,
        "model": DLRM,
        "dense_averaging": averaging,
        "dense_optimizer": {"name": optimizer, "learning_rate": rate},
        "resources": {"workers_per_node": 2, "memory": "4GiB"},
    }


JOBS: dict[str, dict[str, Any]] = {
    "sgd, exact": {
        "data": SYNTHETIC,
        "model": DLRM,
        "variance_reduction": {},
        "dense_optimizer": {"name": "sgd", "learning_rate": 0.2, "schedule": schedule("polynomial", "linear")},
    },
    "adam, lists by their mean, scaled update": {
        "data": csv_of(dense=DENSE, categorical=CATEGORICAL),
        "model": {**DLRM, "pooling": "mean"},
        "variance_reduction": {"scale": "update"},
        "dense_optimizer": {"name": "adam", "learning_rate": 0.002, "schedule": schedule("constant", "none")},
    },
    "adagrad, no tables, no moments": {
        "data": csv_of(dense=DENSE),
        "model": DLRM,
        "moments": None,
        "dense_optimizer": {"name": "adagrad", "learning_rate": 0.02, "schedule": schedule("polynomial", "sqrt")},
    },
    "lars, dcn_v2 and lists by their mean, groups, scaled update": {
        "data": csv_of(dense=DENSE, categorical=CATEGORICAL),
        "model": {**DCN, "pooling": "mean"},
        "moments": {"estimator": "groups"},
        "variance_reduction": {"scale": "update"},
        "dense_optimizer": {"name": "lars", "learning_rate": 4.0, "schedule": schedule("cosine", "legw")},
    },
    "kfac, momentum": {
        "data": SYNTHETIC,
        "model": DLRM,
        "variance_reduction": {},
        "preconditioner": {},
        "dense_optimizer": {"name": "momentum", "learning_rate": 0.03},
    },
    "adascale, momentum": {
        "data": SYNTHETIC,
        "model": DLRM,
        "dense_optimizer": {"name": "momentum", "learning_rate": 0.03, "schedule": schedule("cosine", "adascale")},
    },
    "autowu, adam": {
        "data": SYNTHETIC,
        "model": DLRM,
        "dense_optimizer": {"name": "adam", "schedule": {"autowu": {"max_fraction": 0.2}}},
        "run": {"epochs": 6, "eval_every_fraction": 1.0, "yardsticks": "none"},
    },
    "copies without features, variance reduction": {
        "data": SYNTHETIC,
        "model": DLRM,
        "augmentation": {},
        "variance_reduction": {},
        "dense_optimizer": {"name": "adam", "learning_rate": 0.005},
    },
    "adversarial copies, adafactor": {
        "data": SYNTHETIC,
        "model": DCN,
        "augmentation": {"method": "adversarial"},
        "dense_optimizer": {"name": "adafactor", "learning_rate": 0.01},
    },
    "local sgd on two ranks": on_two_ranks({}, "adam", 0.005),
    "easgd on two ranks": on_two_ranks({"method": "easgd"}, "adam", 0.005),
    "dmsgd on two ranks": on_two_ranks({"method": "dmsgd"}, "momentum", 0.05),
    "decentlam on two ranks": on_two_ranks({"method": "decentlam", "graph": "ring"}, "momentum", 0.05),
    "nesterov, a limit of the norm, smoothed labels, sharpness": {
        "data": SYNTHETIC,
        "model": DLRM,
        "dense_optimizer": {"name": "momentum", "learning_rate": 0.05, "nesterov": True, "max_gradient_norm": 1.0},
        "run": {"label_smoothing": 0.02, "sharpness": {}, "epochs": 2, "yardsticks": "none"},
    },
    "mixed batches": {
        "data": SYNTHETIC,
        "model": DLRM,
        "batch": {"global_size": 2048, "schedule": "mixed"},
        "dense_optimizer": {"name": "adam", "learning_rate": 0.005},
    },
}
REFUSED: dict[str, dict[str, Any]] = {
    "preconditioner": {"preconditioner": {}, "dense_optimizer": {"name": "soap"}},
    "dense_optimizer.schedule.autowu": {
        "batch": {"schedule": "mixed"},
        "dense_optimizer": {"schedule": {"autowu": {}}},
    },
    "dense_optimizer.name": {"dense_averaging": {"method": "decentlam"}, "dense_optimizer": {"name": "adam"}},
    "variance_reduction": {"dense_averaging": {}, "variance_reduction": {}},
    "averaging": {"dense_averaging": {}, "averaging": {}},
    "moments.estimator": {"augmentation": {}, "moments": {"estimator": "exact"}},
    "dense_optimizer.nesterov": {"dense_optimizer": {"name": "adam", "nesterov": True}},
    "augmentation.strength": {"augmentation": {"strength": 0.1}},
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    data = tmp_path_factory.mktemp("data")
    write_rows(data / "rows.csv", 20_000)
    settings = {"DLRM_NUM_CORES": "2", "DLRM_DATA_ROOTS": str(data), "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
    with run_service(tmp_path_factory.mktemp("state"), settings) as client:
        yield client


def write_rows(path: Path, num_rows: int) -> None:
    """Rows whose label follows from every column by itself."""
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, num_rows))
    sites = random.integers(0, 40, num_rows)
    lines = ["label,x,y,site,tags"]
    for row in range(num_rows):
        tags = random.integers(0, 9, random.integers(0, 4))
        logit = 1.5 * x[row] - y[row] + (2.0 if sites[row] % 2 else -1.0) + 0.5 * float(np.sum(tags > 4)) - 1.0
        label = int(random.random() < 1 / (1 + math.exp(-logit)))
        lines.append(f"{label},{x[row]:.4f},{y[row]:.4f},s{sites[row]},{'|'.join(map(str, tags))}")
    path.write_text("\n".join(lines) + "\n")


def submit(client: Client, document: dict[str, Any]) -> Job:
    return client.submit({"table_optimizer": TABLES, "resources": {"memory": "4GiB"}, "max_restarts": 0, **document})


def succeeded(client: Client, job: Job) -> Job:
    job = list(client.follow(job.id))[-1]
    assert job.state == "SUCCEEDED", job.message
    return job


def losses_of(client: Client, job: Job) -> list[float]:
    """Of every step, in order."""
    steps = list(client.metrics(job.id, kind="step"))
    assert [step.step for step in steps] == list(range(1, steps[-1].num_steps + 1))
    return [step.loss for step in steps]


def assert_falls(losses: list[float]) -> None:
    part = len(losses) // 10
    assert mean(losses[-part:]) < 0.95 * mean(losses[:part])


@pytest.mark.parametrize("name", JOBS)
def test_a_job_over_rest_trains_with_a_falling_loss(client: Client, name: str):
    document = {
        "batch": {"global_size": 1024},
        "run": {"epochs": 2, "eval_every_fraction": 1.0, "yardsticks": "none"},
        **JOBS[name],
    }
    job = succeeded(client, submit(client, document))
    assert_falls(losses_of(client, job))
    last = list(client.metrics(job.id, kind="step"))[-1]
    is_reduced = "variance_reduction" in document
    has_moments = is_reduced or not {"moments", "augmentation", "dense_averaging"} & set(document)
    assert (last.gsnr is not None) == has_moments
    assert (last.share_at_gamma is not None, last.share_at_one is not None) == (is_reduced, is_reduced)
    (event,) = [event for event in client.events(job.id) if event.name == BATCH_ADVICE]
    advice = BatchAdvice.model_validate(event.details)
    assert advice.batch == document["batch"]["global_size"]
    # Whether so few steps bound the noise scale is chance; what is told of it is the same everywhere.
    assert advice.noise_scale == job.metrics["noise_scale"]
    assert advice.noise_scale in (None, last.noise_scale)
    assert (advice.noise_scale is None) == (event.message or "").startswith("no advice on the batch: ")
    assert advice.largest_useful_batch == job.metrics["largest_useful_batch"]


@pytest.mark.parametrize("field", REFUSED)
def test_a_combination_that_means_nothing_is_refused_over_rest_with_what_would_be_valid(client: Client, field: str):
    with pytest.raises(ServiceError) as raised:
        submit(client, {"data": SYNTHETIC, **REFUSED[field]})
    (error,) = raised.value.problem.errors
    assert (error.field, bool(error.valid)) == (field, True)
