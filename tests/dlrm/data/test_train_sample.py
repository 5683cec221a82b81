"""The sample of training rows that evaluations measure the model on."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dlrm.config import DataConfig
from dlrm.data.dataset import Dataset
from dlrm.data.open import open_data
from dlrm.data.rows import RowSource
from dlrm.data.split import RUN_ROWS, hold_out_validation, sample_train_rows


def open_log(num_rows: int, eval_fraction: float = 0.5) -> Dataset:
    document = {"format": "synthetic", "eval_fraction": eval_fraction, "synthetic": {"num_rows": num_rows}}
    return open_data(DataConfig.model_validate(document), None, None)


def read_rows(source: RowSource) -> list[tuple[float, ...]]:
    rows = source.read(np.arange(source.num_rows))
    return [(float(label), *map(float, dense)) for label, dense in zip(rows.labels, rows.dense, strict=True)]


@pytest.mark.parametrize("max_rows", [1, 63, 64, 65, 200, 1000, 10**6])
def test_it_has_different_training_rows_spread_over_all_of_them(max_rows: int):
    dataset = open_log(2000)
    sample = sample_train_rows(dataset, max_rows)
    assert sample is not None
    bound = min(max_rows, dataset.evaluation.num_rows, dataset.train.num_rows)
    assert bound - RUN_ROWS < sample.num_rows <= bound
    train = read_rows(dataset.train)
    found = [train.index(row) for row in read_rows(sample)]
    assert len(set(found)) == len(found)
    assert found == sorted(found)
    # Runs are evenly spaced: two neighbouring rows of the sample are no further apart than two runs.
    num_runs = sample.num_rows // min(RUN_ROWS, sample.num_rows)
    gaps = np.diff([0, *found, len(train)])
    assert gaps.max() <= len(train) / num_runs + 1


def test_it_has_no_more_rows_than_there_are_evaluation_rows():
    dataset = open_log(2000, eval_fraction=0.1)
    sample = sample_train_rows(dataset, 1000)
    assert sample is not None
    assert sample.num_rows <= dataset.evaluation.num_rows


def test_it_has_no_validation_row():
    dataset = hold_out_validation(open_log(2000), 0.2, "hash", seed=0)
    sample = sample_train_rows(dataset, 10**6)
    assert sample is not None
    assert dataset.validation is not None
    assert not set(read_rows(sample)) & set(read_rows(dataset.validation))


def test_there_is_none_unless_a_job_asks_for_it():
    assert sample_train_rows(open_log(200), 0) is None


def test_there_is_none_without_a_weight():
    dataset = open_log(2000)
    weightless = SimpleNamespace(
        num_rows=dataset.train.num_rows,
        read=lambda numbers: replace(dataset.train.read(numbers), weights=np.zeros(len(numbers), np.float32)),
        read_weights=lambda numbers: np.zeros(len(numbers), np.float32),
    )
    changed = replace(dataset, train=weightless, has_weights=True)  # pyright: ignore[reportArgumentType]
    assert sample_train_rows(changed, 100) is None
