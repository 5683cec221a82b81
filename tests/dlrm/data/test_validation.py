"""The split of training rows into trained ones and validation rows."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest

from dlrm.config import DataConfig, count_validation_rows
from dlrm.data.dataset import Dataset
from dlrm.data.open import open_data
from dlrm.data.packed.open import open_packed
from dlrm.data.rows import RowSource, Runs
from dlrm.data.split import hold_out_validation
from tests.dlrm.data.packed_files import ONE_ID, random_rows, write_packed


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


def find_held_out(num_rows: int, fraction: float, seed: int) -> list[int]:
    """Find the numbers of the validation rows."""
    source = Weighted(np.arange(num_rows, dtype=np.float32) + 1)
    dataset = Dataset(open_log(20).schema, source, source, 0.5, None, has_weights=True)  # pyright: ignore[reportArgumentType]
    parts = hold_out_validation(dataset, fraction, "hash", seed)
    assert parts.validation is not None
    trained, held_out = (
        [round(float(weight)) - 1 for weight in part.read(np.arange(part.num_rows)).weights]  # pyright: ignore[reportOptionalIterable]
        for part in (parts.train, parts.validation)
    )
    assert sorted(trained + held_out) == list(range(num_rows))
    assert trained == sorted(trained)
    return held_out


def test_one_row_of_every_k_is_held_out_at_a_place_that_the_seed_draws():
    places = {seed: find_held_out(5003, 0.2, seed) for seed in (0, 1)}
    for held_out in places.values():
        assert [row // 5 for row in held_out] == list(range(1000))
        counts = np.bincount([row % 5 for row in held_out])
        # Each place is drawn 200 times, with a standard deviation of 13.
        assert (np.abs(counts - 200) < 60).all()
    assert places[0] != places[1]
    assert places[0] == find_held_out(5003, 0.2, 0)


@pytest.mark.parametrize("period", [2, 5, 10])
def test_rows_that_alternate_are_held_out_as_they_occur(period: int):
    """One click, and then `period` - 1 rows without one, over and over, as files of sampled negatives are."""
    held_out = find_held_out(20_000, 0.1, seed=0)
    share = np.mean([row % period == 0 for row in held_out])
    assert abs(share - 1 / period) < 5 * (period - 1) ** 0.5 / period / 2000**0.5


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

    def read_weights(self, row_numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray:
        return self.weights[row_numbers]


def test_rows_without_weight_are_not_held_out_alone():
    whole = open_log(500)
    weights = np.tile(np.array([0, 1], np.float32), 50)
    dataset = Dataset(whole.schema, Weighted(weights), whole.evaluation, 0.5, None, has_weights=True)  # pyright: ignore[reportArgumentType]
    held_out = hold_out_validation(dataset, 0.1, "hash", seed=0).validation
    assert held_out is not None
    # Ten rows are held out of 100: with weights at none of them all are trained on.
    weights[:] = 1
    for row in find_held_out(100, 0.1, 0):
        weights[row] = 0
    assert hold_out_validation(dataset, 0.1, "hash", seed=0) is dataset


@pytest.mark.parametrize("split", ["hash", "tail"])
def test_the_mean_weight_is_that_of_the_rows_that_are_trained_on(tmp_path: Path, split: Literal["hash", "tail"]):
    """Weights grow with time, as where recent rows count more: those of the last rows are the largest."""
    rows = random_rows(70_001, (ONE_ID,), num_dense=1)
    write_packed(tmp_path, replace(rows, weights=np.geomspace(1e-3, 10, 70_001, dtype=np.float32)), rows, (ONE_ID,))
    whole = open_packed(tmp_path)
    parts = hold_out_validation(whole, 0.2, split, seed=1)
    trained = parts.train.read(np.arange(parts.train.num_rows)).weights
    assert trained is not None
    assert parts.mean_train_weight == pytest.approx(trained.mean(dtype=np.float64), rel=1e-12)
    assert abs(parts.mean_train_weight / whole.mean_train_weight - 1) > (0.5 if split == "tail" else 1e-9)


def test_the_last_rows_are_as_many_as_asked_for():
    assert count_validation_rows(1000, 0.4, "tail") == 400
    assert count_validation_rows(1000, 0.4, "hash") == 500
    assert count_validation_rows(1009, 0.1, "hash") == 100
    assert count_validation_rows(3, 0.25, "hash") == 0
