"""Boosted trees of the library that is installed, and the columns that they are given."""

import numpy as np
import pytest

from dlrm.data.rows import DataSchema, Feature, Rows
from dlrm.metrics.binary import auc
from dlrm.yardsticks.boosted_trees import NUM_FOLDS, PRIOR_ROWS, find_boosted_trees, fit_boosted_trees, make_tree_inputs
from sharding.jagged import JaggedIds
from tests.dlrm.yardsticks.memory_rows import COUNTRY, TAGS, draw_rows

WIDE = Feature("device", 300)
FEATURES = (COUNTRY, TAGS, WIDE)


def test_columns_are_numbers_categories_lengths_of_lists_and_ids_with_their_label_rate() -> None:
    source = draw_rows(500, FEATURES, num_dense=2)
    rows = source.rows
    inputs, _ = make_tree_inputs(source.schema, rows)
    encoded = inputs.encode(rows)
    assert encoded.shape == (500, 2 + 1 + 1 + 2)
    assert inputs.categories == [2]
    assert np.array_equal(encoded[:, :2], rows.dense)
    assert np.array_equal(encoded[:, 2], rows.ids.values[:500])
    assert np.array_equal(encoded[:, 3], rows.ids.lengths[1])
    ids = rows.ids.values[-500:]
    assert np.array_equal(encoded[:, 4], ids)
    mean = rows.labels.mean()
    for row in range(0, 500, 50):
        same = ids == ids[row]
        rate = (rows.labels[same].sum() + PRIOR_ROWS * mean) / (same.sum() + PRIOR_ROWS)
        assert encoded[row, 5] == pytest.approx(rate, rel=1e-5)


def test_the_label_rate_of_a_training_row_comes_from_rows_of_other_folds() -> None:
    source = draw_rows(500, (WIDE,), num_dense=0)
    rows = source.rows
    _, encoded = make_tree_inputs(source.schema, rows)
    ids, fold, mean = rows.ids.values, np.arange(500) % NUM_FOLDS, rows.labels.mean()
    for row in range(0, 500, 50):
        others = (ids == ids[row]) & (fold != fold[row])
        rate = (rows.labels[others].sum() + PRIOR_ROWS * mean) / (others.sum() + PRIOR_ROWS)
        assert encoded[row, 1] == pytest.approx(rate, rel=1e-5)


def test_trees_learn_what_no_linear_model_can_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    name = find_boosted_trees()
    if name is None:
        pytest.skip("neither LightGBM nor scikit-learn is installed")
    random = np.random.default_rng(0)
    source = draw_rows(3000, FEATURES)
    dense = random.normal(size=(3000, 3)).astype(np.float32)
    labels = (dense[:, 0] * dense[:, 1] > 0).astype(np.float32)
    rows = Rows(labels, dense, source.rows.ids, random.exponential(size=3000).astype(np.float32))
    trees = fit_boosted_trees(name, type(source)(source.schema, rows), 1 << 30, num_threads=1, on_tree=print)
    told = capsys.readouterr().out.split()
    assert told == [str(number) for number in range(1, len(told) + 1)]
    assert len(told) > 20
    assert trees.num_rows == 3000
    area = auc(labels, trees.predict(rows))
    assert area is not None
    assert area > 0.95


def test_rows_without_features_of_many_ids_or_without_ids_are_encoded() -> None:
    empty = JaggedIds(np.empty(0, dtype=np.int64), np.empty((0, 3), dtype=np.int32))
    rows = Rows(np.array([0, 1, 1], dtype=np.float32), np.ones((3, 2), dtype=np.float32), empty)
    inputs, encoded = make_tree_inputs(DataSchema(2, ()), rows)
    assert np.array_equal(encoded, rows.dense)
    assert inputs.categories == []


def test_values_of_several_ids_are_numbered_by_quotient_and_remainder_and_new_ones_are_alike() -> None:
    values = np.array([11, 0, 5, 11, 8, 5])
    pairs = np.stack([values % 5, 5 + values // 5], axis=1)
    lengths = np.full((1, 6), 2, dtype=np.int32)
    labels = np.array([1, 0, 1, 1, 0, 0], dtype=np.float32)
    rows = Rows(labels, np.empty((6, 0), dtype=np.float32), JaggedIds(pairs.reshape(-1), lengths))
    inputs, encoded = make_tree_inputs(DataSchema(0, (Feature("page", 8, ids_per_value=2),)), rows)
    assert inputs.categories == [0]
    assert encoded[:, 0].tolist() == [4, 1, 2, 4, 3, 2]
    unseen = np.array([0, 6])  # value 5
    other = Rows(labels[:1], rows.dense[:1], JaggedIds(np.array([1, 7]), lengths[:, :1]))
    assert inputs.encode(other)[0, 0] == 4
    assert inputs.encode(Rows(labels[:1], rows.dense[:1], JaggedIds(np.array([2, 7]), lengths[:, :1])))[0, 0] == 0
    assert inputs.encode(Rows(labels[:1], rows.dense[:1], JaggedIds(unseen, lengths[:, :1])))[0, 0] == 2
