"""What a saved model says is what the model in training said: the sharded one, on the same rows."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

import dlrm.evaluate
import dlrm.predict
from dlrm.build import build_parts, plan_tables
from dlrm.config import ResolvedJob, resolve
from dlrm.data.batches import TrainBatches
from dlrm.data.packed.open import open_packed
from dlrm.device_batch import to_device
from dlrm.evaluator import Evaluator
from dlrm.export import export_model
from dlrm.optimizers import StepRates
from dlrm.record import EvaluationReport
from dlrm.stop import StopRequest
from sharding.agree import Wishes
from sharding.ranks import Ranks
from tests.distributed.rank_pool import RankPools
from tests.dlrm.saved.conftest import Made
from tests.dlrm.saved.made_models import job_of

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(scope="module")
def rank_pools() -> Iterator[RankPools]:
    pools = RankPools()
    yield pools
    pools.close()


def trained_and_evaluated(
    ranks: Ranks, document: str, packed: Path, checkpoint: Path
) -> tuple[np.ndarray, EvaluationReport]:
    """Train an epoch, save, evaluate: this rank's evaluation rows, [3, n] scores, labels, weights; and the report."""
    resolved = ResolvedJob.model_validate_json(document)
    dataset = open_packed(packed)
    plan = plan_tables(resolved, dataset.schema)
    parts = build_parts(resolved, dataset.schema, plan, ranks, mean_train_weight=dataset.mean_train_weight)
    size, job = resolved.job.batch.global_size, resolved.job
    with TrainBatches(dataset.train, size, ranks.rank, ranks.world_size, seed=0, num_epochs=job.run.epochs) as batches:
        for batch in batches:
            parts.step(to_device(batch, ranks.device), StepRates(0.3, 0.3), Wishes())
    state = {"tables": parts.tables.state(), "dense": parts.model.state_dict()}
    save(state, storage_writer=FileSystemWriter(checkpoint), process_group=ranks.dense_group)
    evaluator = Evaluator(parts.model, parts.tables, dataset, ranks, resolved.chunk_size, StopRequest())
    return evaluator._score().numpy(), evaluator(0)


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_scores_equal_the_trainers_evaluation(
    rank_pools: RankPools,
    made: Made,
    tmp_path: Path,
    world_size: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    resources = {"workers_per_node": world_size}
    job = job_of(made.data, batch={"global_size": 16}, run={"epochs": 3}, resources=resources)
    resolved = resolve(job)
    answers = rank_pools.of(world_size).run(
        trained_and_evaluated, resolved.model_dump_json(), made.packed, tmp_path / "checkpoint"
    )
    scored = np.concatenate([of_rank for of_rank, _ in answers], axis=1)
    in_training = scored[0, ~np.isnan(scored[1])]
    report = answers[0][1]
    dataset = open_packed(made.packed)
    export_model(tmp_path / "checkpoint", tmp_path / "model", resolved, dataset, {"auc": report.auc})

    output = tmp_path / "scores.parquet"
    assert dlrm.predict.main([str(tmp_path / "model"), str(made.packed), "--output", str(output)]) == 0
    scores = parquet.read_table(output)["probability"].to_numpy()
    assert np.ptp(in_training) > 0.01
    np.testing.assert_allclose(scores[dataset.train.num_rows :], in_training, rtol=0, atol=1e-6)

    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["evaluate", str(tmp_path / "model")])
    assert dlrm.evaluate.main() == 0
    answer = json.loads(capsys.readouterr().out)
    for name in ("num_rows", "auc", "log_loss", "calibration", "normalized_entropy", "constant_log_loss"):
        assert answer[name] == pytest.approx(getattr(report, name), abs=1e-6), name
