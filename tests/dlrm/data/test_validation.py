"""The split of training rows into trained ones and validation rows."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest

from dlrm.config import DataConfig, count_validation_rows
from dlrm.data.dataset import Dataset
from dlrm.data.open import open_data
from dlrm.data.rows import RowSource, Runs
from dlrm.data.validation import hold_out_validation


def open_log(num_rows: int) -> Dataset:
    return open_data(
        DataConfig.model_validate({"format": "synthetic", "synthetic": {"num_rows": num_rows}}), None, None
    )


def read_labels_and_dense(source: RowSource) -> list[tuple[float, ...]]:
    rows = source.read(np.arange(source.num_rows))
    return [(float(label), *map(float, dense)) for label, dense in zip(rows.labels, rows.dense, strict=True)]


@pytest.mark.parametrize("split", ["hash", "tail"])
@pytest.mark.parametrize("fraction", [0.5, 0.1, 1 / 7])
@pytest.mark.parametrize("seed", [0, 1, 6, 1000])
def test_every_row_is_trained_on_or_held_out_and_never_both(split: Literal["hash", "tail"], fraction: float, seed: int):
    whole = open_log(500)
    parts = hold_out_validation(whole, fraction, split, seed)
    assert parts.validation is not None
    assert abs(parts.validation.num_rows - fraction * whole.train.num_rows) <= 1
    found = read_labels_and_dense(parts.train) + read_labels_and_dense(parts.validation)
    assert sorted(found) == sorted(read_labels_and_dense(whole.train))
    assert read_labels_and_dense(parts.evaluation) == read_labels_and_dense(whole.evaluation)


def test_the_last_rows_are_held_out_of_a_log_in_order_of_time():
    whole = open_log(500)
    parts = hold_out_validation(whole, 0.2, "tail", seed=3)
    assert parts.validation is not None
    num_left = parts.train.num_rows
    assert read_labels_and_dense(parts.validation) == read_labels_and_dense(whole.train)[num_left:]


def test_every_kth_row_is_held_out_from_one_that_the_seed_chooses():
    whole = open_log(500)
    expected = read_labels_and_dense(whole.train)
    for seed, first in ((0, 0), (3, 3), (5, 0), (14, 4)):
        parts = hold_out_validation(whole, 0.2, "hash", seed)
        assert parts.validation is not None
        assert read_labels_and_dense(parts.validation) == expected[first::5]
        assert read_labels_and_dense(parts.train) == [row for n, row in enumerate(expected) if n % 5 != first]


def test_without_a_fraction_or_with_too_few_rows_all_are_trained_on():
    whole = open_log(12)
    assert hold_out_validation(whole, 0.0, "hash", 0) is whole
    assert hold_out_validation(whole, 0.01, "hash", 0) is whole


@dataclass
class Announced:
    """A source that records what is announced to it."""

    source: RowSource
    runs: list[Runs] = field(default_factory=list[Runs])

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        self.runs += [now, soon]

    def __getattr__(self, name: str) -> object:
        return getattr(self.source, name)


@pytest.mark.parametrize("split", ["hash", "tail"])
def test_rows_that_are_announced_cover_those_that_are_read(split: Literal["hash", "tail"]):
    whole = open_log(500)
    source = Announced(whole.train)
    parts = hold_out_validation(Dataset(whole.schema, source, whole.evaluation, 0.5, None), 0.25, split, 1)  # pyright: ignore[reportArgumentType]
    parts.train.look_ahead(Runs(np.array([0, 30]), np.array([10, 47])), Runs(np.array([100]), np.array([300])))
    now, soon = source.runs
    expected = read_labels_and_dense(whole.train)
    read = read_labels_and_dense(parts.train)
    for runs, numbers in ((now, [*range(10), *range(30, 47)]), (soon, range(100, 300))):
        announced = {
            expected[row] for start, end in zip(runs.starts, runs.ends, strict=True) for row in range(start, end)
        }
        assert {read[number] for number in numbers} <= announced


@dataclass
class Weighted:
    """A source of one column whose weights are given."""

    weights: np.ndarray[tuple[int], np.dtype[np.float32]]

    @property
    def num_rows(self) -> int:
        return len(self.weights)

    def read(self, row_numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> object:
        return SimpleNamespace(weights=self.weights[row_numbers])


def test_rows_without_weight_are_not_held_out_alone():
    whole = open_log(500)
    weights = np.tile(np.array([0, 1], np.float32), 50)
    dataset = Dataset(whole.schema, Weighted(weights), whole.evaluation, 0.5, None, has_weights=True)  # pyright: ignore[reportArgumentType]
    assert hold_out_validation(dataset, 0.1, "hash", seed=0) is dataset
    assert hold_out_validation(dataset, 0.1, "hash", seed=1).validation is not None


def test_the_last_rows_are_as_many_as_asked_for():
    assert count_validation_rows(1000, 0.4, "tail", 0) == 400
    assert count_validation_rows(1000, 0.4, "hash", 0) == 500
    assert count_validation_rows(3, 0.25, "hash", 0) == 0
