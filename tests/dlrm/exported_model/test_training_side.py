"""What a saved model says is what the model in training said: the sharded one, on the same rows."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from sklearn.metrics import roc_auc_score
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

import dlrm.programs.evaluate
import dlrm.programs.predict
from dlrm.config import DataConfig, JobConfig, ResolvedJob, resolve
from dlrm.data.batches import TrainBatches
from dlrm.data.packed.open import open_packed
from dlrm.exported_model.export import export_model
from dlrm.exported_model.load import load_saved_model
from dlrm.optimizers import StepRates
from dlrm.record import EvaluationReport
from dlrm.train.batch import to_device
from dlrm.train.build import TrainRows, build_parts, plan_tables
from dlrm.train.evaluator import Evaluator
from dlrm.train.stop_request import StopRequest
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import StepVote
from tests.dlrm.data.packed_files import prepare_in_cache
from tests.dlrm.exported_model.conftest import Made
from tests.dlrm.exported_model.model_factory import SIZES, job_of
from tests.dlrm.model.small_models import make_small_model
from tests.rank_pool.pool import RankPools

OUTPUT_BIAS = "top.layers.1.bias"

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def trained_and_evaluated(
    ranks: Ranks, document: str, packed: Path, checkpoint: Path, bias: float = 0.0
) -> tuple[np.ndarray, EvaluationReport]:
    """Train an epoch, save, evaluate: this rank's evaluation rows, [3, n] logits, labels, weights; and the report.

    bias: added to all logits after the training.
    """
    resolved = ResolvedJob.model_validate_json(document)
    dataset = open_packed(packed)
    plan = plan_tables(resolved, dataset.schema).plan
    parts = build_parts(
        resolved, dataset.schema, plan, ranks, TrainRows(dataset.train.num_rows, dataset.mean_train_weight)
    )
    size, job = resolved.job.batch.global_size, resolved.job
    with TrainBatches(dataset.train, size, ranks.rank, ranks.world_size, seed=0, num_epochs=job.run.epochs) as batches:
        for batch in batches:
            parts.step(to_device(batch, ranks.device), StepRates(0.1, 0.3), StepVote())
    if bias:
        dict(parts.model.named_parameters())[OUTPUT_BIAS].data += bias
    state = {"tables": parts.tables.state_dict(), "dense": parts.model.state_dict()}
    save(state, storage_writer=FileSystemWriter(checkpoint), process_group=ranks.dense_group)
    sizes = resolved.share_size, resolved.chunk_size
    evaluator = Evaluator(parts.model, parts.tables, dataset, dataset.evaluation, ranks, *sizes, StopRequest())
    return evaluator._score().numpy(), evaluator(0)


def check_scores(rank_pools: RankPools, job: JobConfig, packed: Path, place: Path) -> EvaluationReport:
    """Train, export to `place / "model"`, and see that it scores as in training; what that evaluation has measured."""
    resolved = resolve(job)
    answers = rank_pools.of(job.resources.world_size).run(
        trained_and_evaluated, resolved.model_dump_json(), packed, place / "checkpoint"
    )
    scored = np.concatenate([of_rank for of_rank, _ in answers], axis=1)
    in_training = 1 / (1 + np.exp(-scored[0, ~np.isnan(scored[1])].astype(np.float64)))
    report = answers[0][1]
    dataset = open_packed(packed)
    export_model(place / "checkpoint", place / "model", resolved, dataset, {"auc": report.auc})

    output = place / "scores.parquet"
    assert dlrm.programs.predict.main([str(place / "model"), str(packed), "--output", str(output)]) == 0
    scores = parquet.read_table(output)["probability"].to_numpy()
    assert np.ptp(in_training) > 0.01
    np.testing.assert_allclose(scores[dataset.train.num_rows :], in_training, rtol=0, atol=1e-6)
    return report


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_scores_equal_the_trainers_evaluation(
    rank_pools: RankPools,
    made: Made,
    tmp_path: Path,
    world_size: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    job = job_of(made.data, batch={"global_size": 16}, run={"epochs": 3}, resources={"workers_per_node": world_size})
    report = check_scores(rank_pools, job, made.packed, tmp_path)
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["evaluate", str(tmp_path / "model")])
    assert dlrm.programs.evaluate.main() == 0
    answer = json.loads(capsys.readouterr().out)
    for name in ("num_rows", "auc", "log_loss", "calibration", "normalized_entropy", "constant_log_loss"):
        assert answer[name] == pytest.approx(getattr(report, name), abs=1e-6), name


def test_rows_whose_float32_probabilities_are_all_1_are_distinguished_in_training_and_after(
    rank_pools: RankPools,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    job = job_of(made.data, batch={"global_size": 16}, run={"epochs": 3}, resources={"workers_per_node": 2})
    resolved = resolve(job)
    answers = rank_pools.of(2).run(
        trained_and_evaluated, resolved.model_dump_json(), made.packed, tmp_path / "checkpoint", 30.0
    )
    logits, labels, weights = np.concatenate([of_rank for of_rank, _ in answers], axis=1)
    is_row = ~np.isnan(labels)
    assert logits[is_row].min() > 20
    check_metrics(answers[0][1].model_dump(), logits[is_row], labels[is_row], weights[is_row])

    dataset = open_packed(made.packed)
    export_model(tmp_path / "checkpoint", tmp_path / "model", resolved, dataset, {"auc": answers[0][1].auc})
    monkeypatch.setattr(sys, "argv", ["evaluate", str(tmp_path / "model")])
    capsys.readouterr()
    assert dlrm.programs.evaluate.main() == 0
    rows = dataset.evaluation.read(np.arange(dataset.evaluation.num_rows))
    assert rows.weights is not None
    module = load_saved_model(tmp_path / "model").module
    arrays = (rows.dense, rows.ids.values, rows.ids.lengths)
    exported = module(*(torch.from_numpy(array) for array in arrays)).detach().numpy()
    check_metrics(json.loads(capsys.readouterr().out), exported, rows.labels, rows.weights)


def check_metrics(found: Mapping[str, Any], logits: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> None:
    """Against scikit-learn's AUC of the logits, and the other metrics by their formulas."""
    logits, weights = logits.astype(np.float64), weights.astype(np.float64)
    assert found["auc"] == pytest.approx(roc_auc_score(labels, logits, sample_weight=weights), abs=1e-9)
    assert found["auc"] != pytest.approx(0.5, abs=1e-3)
    losses = np.log1p(np.exp(-logits)) + np.where(labels == 1, 0, logits)
    assert found["log_loss"] == pytest.approx(np.average(losses, weights=weights), rel=1e-6)
    expected = weights @ (1 / (1 + np.exp(-logits))) / (weights @ labels)
    assert found["calibration"] == pytest.approx(expected, rel=1e-9)


DENSE = [{"name": "age"}, {"name": "clicks", "transform": "log"}]
LISTS = [{"name": "tags", "multi_hot": True}, {"name": "items", "type": "integer", "multi_hot": True}]


def write_lists(path: Path, num_rows: int = 300) -> Path:
    """Rows of lists, some empty and some missing, with repeated values."""
    random = np.random.default_rng(0)
    lengths = random.integers(-1, 4, (2, num_rows))
    columns = {
        "label": np.arange(num_rows) % 2,
        "age": random.normal(40, 10, num_rows),
        "clicks": random.integers(0, 99, num_rows),
        "tags": [None if n < 0 else [f"t{tag}" for tag in random.integers(0, 4, n)] for n in lengths[0]],
        "items": [None if n < 0 else random.integers(0, 5, n).tolist() for n in lengths[1]],
    }
    parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("schema", "architecture", "world_size"),
    [
        ({"dense": DENSE, "categorical": LISTS}, "dcn_v2", 2),
        ({"categorical": LISTS}, "dlrm", 2),
        ({"dense": DENSE}, "dlrm", 2),
        ({"dense": DENSE, "categorical": LISTS}, "deepfm", 2),
        ({"dense": DENSE, "categorical": LISTS}, "masknet", 2),
        ({"dense": DENSE, "categorical": LISTS}, "wukong", 2),
        pytest.param({"dense": DENSE, "categorical": LISTS}, "gdcn", 2, marks=pytest.mark.slow),
        pytest.param({"dense": DENSE, "categorical": LISTS}, "finalmlp", 2, marks=pytest.mark.slow),
        pytest.param({"dense": DENSE, "categorical": LISTS}, "dlrm", 1, marks=pytest.mark.slow),
        pytest.param({"categorical": LISTS}, "dcn_v2", 1, marks=pytest.mark.slow),
        pytest.param({"categorical": LISTS[:1]}, "dlrm", 2, marks=pytest.mark.slow),
        pytest.param({"dense": DENSE}, "dcn_v2", 1, marks=pytest.mark.slow),
    ],
    ids=[
        "all",
        "no dense",
        "no tables",
        "deepfm",
        "masknet",
        "wukong",
        "gdcn",
        "finalmlp",
        "all, dlrm",
        "no dense, dcn_v2",
        "one table",
        "no tables, dcn_v2",
    ],
)
def test_means_of_lists_and_columns_of_one_kind_score_as_in_training(
    rank_pools: RankPools, tmp_path: Path, schema: dict[str, Any], architecture: str, world_size: int
):
    rows = write_lists(tmp_path / "rows.parquet")
    data = DataConfig.model_validate({"train": [str(rows)], "format": "parquet", "schema": schema})
    packed = prepare_in_cache(data, tmp_path)
    model = make_small_model(architecture, **SIZES, pooling="mean").model_dump()
    resources = {"workers_per_node": world_size}
    # Adam at the rate of these steps would leave few units alive.
    fields = {"batch": {"global_size": 16}, "run": {"epochs": 3}, "dense_optimizer": {"name": "sgd"}}
    job = job_of(data, model=model, resources=resources, **fields)
    check_scores(rank_pools, job, packed, tmp_path)
