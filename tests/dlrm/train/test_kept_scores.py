"""Scores of the evaluation rows that a run keeps."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlrm.config import ResolvedJob
from dlrm.data.open import open_data
from dlrm.exported_model.load import load_saved_model
from dlrm.exported_model.score import score
from dlrm.metrics.binary import auc
from dlrm.record import SCORES_LOST, Outcome, RunDirectory, ScoresDirectory, ScoresRecord
from dlrm.reporting.reporter import Reporter
from dlrm.train.evaluator import Scores
from dlrm.train.kept_scores import choose_scores, keep_scores
from tests.dlrm.train.test_best_model import OVERFITTING
from tests.dlrm.train.test_run import resolve_job, run_attempt
from tests.rank_pool.pool import RankPools

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

MANY_ROWS: dict[str, Any] = {"format": "synthetic", "eval_fraction": 0.5}
MANY_ROWS["synthetic"] = {"num_rows": 36_001, "num_ids": 200}
"""Rows of which an evaluation takes more than one batch, the last one short."""


def train(rank_pools: RankPools, path: Path, job: ResolvedJob, num_ranks: int, num_looks: int | None = None) -> Outcome:
    number = 1 + len(list(path.glob("attempt-*")))
    return rank_pools.of(num_ranks).run(run_attempt, path, number, job, num_looks)[0]


def read_kept(path: Path) -> tuple[ScoresRecord, np.ndarray, np.ndarray]:
    directory = RunDirectory(path).scores
    record = ScoresRecord.read(directory.record)
    assert record is not None
    assert {file.name for file in directory.path.iterdir()} == {
        "labels.npy",
        "scores.json",
        directory.logits(record.step).name,
    }
    return record, np.load(directory.logits(record.step)), np.load(directory.labels)


@pytest.mark.parametrize("num_ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_scores_are_those_of_the_model_in_the_order_of_the_rows(
    rank_pools: RankPools, tmp_path: Path, num_ranks: int
):
    job = resolve_job(
        data=MANY_ROWS,
        run={"eval_every_fraction": 0.5, "yardsticks": "none", "keep_scores": True},
        resources={"workers_per_node": num_ranks},
    )
    outcome = train(rank_pools, tmp_path, job, num_ranks)
    record, logits, labels = read_kept(tmp_path)
    evaluation = open_data(job.job.data, None, None).evaluation
    rows = evaluation.read(np.arange(evaluation.num_rows))
    assert evaluation.num_rows > 16_384
    np.testing.assert_array_equal(labels, rows.labels)
    expected = score(load_saved_model(RunDirectory(tmp_path).model).module, rows)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)
    assert (logits.dtype, record.num_rows, record.is_weighted) == (np.float32, len(rows.labels), False)
    assert record.checksum == hashlib.sha256(rows.labels.astype(np.float32).tobytes()).hexdigest()
    assert auc(labels, logits) == pytest.approx(outcome.metrics["auc"], abs=1e-12)


@pytest.mark.slow
def test_scores_are_the_best_models_even_if_the_run_was_stopped_later(rank_pools: RankPools, tmp_path: Path):
    run = {"epochs": 12, "validation_fraction": 0.2, "eval_every_fraction": 0.05, "keep_scores": True}
    job = resolve_job(**OVERFITTING, run={**run, "yardsticks": "none"})
    assert train(rank_pools, tmp_path, job, 2, num_looks=95).state == "stopped"
    outcome = train(rank_pools, tmp_path, job, 2)
    assert outcome.state == "succeeded"
    record, logits, labels = read_kept(tmp_path)
    assert record.step == outcome.metrics["model_step"] < (outcome.step or 0)
    assert auc(labels, logits) == pytest.approx(outcome.metrics["auc"], abs=1e-12)


def test_weights_are_kept_beside_the_labels_and_count_in_the_checksum(tmp_path: Path):
    labels, weights = np.array([0.0, 1.0], np.float32), np.array([1.0, 0.5], np.float32)
    checksums: list[str] = []
    for name, of_rows in (("equal", None), ("weighted", weights)):
        reporter = Reporter(RunDirectory(tmp_path / name).attempt(1), 0)
        directory = ScoresDirectory(tmp_path / name / "scores")
        keep_scores(directory, reporter, 3, Scores(np.array([0.2, 0.4], np.float32), labels, of_rows))
        choose_scores(directory, reporter, 3)
        record = ScoresRecord.read(directory.record)
        assert record is not None
        assert record.is_weighted == directory.weights.exists() == (of_rows is not None)
        checksums.append(record.checksum)
    assert checksums[0] != checksums[1]


def test_a_run_whose_scores_cannot_be_written_says_so_and_goes_on(tmp_path: Path):
    directory, attempt = ScoresDirectory(tmp_path / "scores"), RunDirectory(tmp_path).attempt(1)
    directory.path.write_text("a file in their place")
    rows = np.zeros(2, np.float32)
    reporter = Reporter(attempt, 0)
    keep_scores(directory, reporter, 3, Scores(rows, rows, None))
    choose_scores(directory, reporter, 3)
    assert attempt.spool_file(0, "events").read_text().count(SCORES_LOST) == 2
