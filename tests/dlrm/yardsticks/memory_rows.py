"""Rows in memory, with labels drawn from a known linear model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.rows import DataSchema, Feature, Rows, Runs
from sharding.jagged import JaggedIds

SITE, COUNTRY, TAGS = Feature("site", 40), Feature("country", 5), Feature("tags", 12, is_multi_hot=True)


@dataclass(frozen=True)
class MemoryRows:
    """A RowSource of rows in memory."""

    schema: DataSchema
    rows: Rows
    row_bytes: int = 100

    @property
    def num_rows(self) -> int:
        return self.rows.num_rows

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        ends = np.cumsum(self.rows.ids.lengths, axis=None).reshape(self.rows.ids.lengths.shape)
        starts = ends - self.rows.ids.lengths
        bags = [
            self.rows.ids.values[starts[feature, row] : ends[feature, row]]
            for feature in range(len(self.schema.features))
            for row in row_numbers
        ]
        values = np.concatenate([np.empty(0, dtype=np.int64), *bags])
        weights = None if self.rows.weights is None else self.rows.weights[row_numbers]
        lengths = self.rows.ids.lengths[:, row_numbers]
        return Rows(self.rows.labels[row_numbers], self.rows.dense[row_numbers], JaggedIds(values, lengths), weights)

    def read_weights(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float32] | None:
        return None if self.rows.weights is None else self.rows.weights[row_numbers]

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        """Nothing."""

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> None:  # noqa: ARG002
        return None


def make_columns(schema: DataSchema, rows: Rows, *, is_mean: bool) -> NDArray[np.float64]:
    """Every input of a linear model as a column: [n, 1 + N + ids of all features], the first of which is 1."""
    blocks = [np.ones((rows.num_rows, 1)), rows.dense.astype(np.float64)]
    position = 0
    for feature, lengths in zip(schema.features, rows.ids.lengths, strict=True):
        block = np.zeros((rows.num_rows, feature.num_ids))
        for row, length in enumerate(lengths):
            for one in rows.ids.values[position : position + length]:
                block[row, one] += 1 / length if is_mean else 1
            position += length
        blocks.append(block)
    return np.concatenate(blocks, axis=1)


def draw_rows(
    num_rows: int,
    features: Sequence[Feature] = (SITE, TAGS, COUNTRY),
    num_dense: int = 3,
    *,
    weighted: bool = False,
    seed: int = 0,
) -> MemoryRows:
    random = np.random.default_rng(seed)
    schema = DataSchema(num_dense, tuple(features))
    lengths = np.ones((len(features), num_rows), dtype=np.int32)
    ids = [np.empty(0, dtype=np.int64)]
    for of_feature, feature in zip(lengths, features, strict=True):
        if feature.is_multi_hot:
            of_feature[:] = random.integers(0, 4, num_rows)
        # Squares make some ids rare, and leave some out.
        ids.append((feature.num_ids * random.random(of_feature.sum()) ** 2).astype(np.int64))
    dense = (5 + 3 * random.normal(size=(num_rows, num_dense))).astype(np.float32)
    weights = random.exponential(size=num_rows).astype(np.float32) if weighted else None
    unlabelled = Rows(np.zeros(num_rows, dtype=np.float32), dense, JaggedIds(np.concatenate(ids), lengths), weights)
    columns = make_columns(schema, unlabelled, is_mean=False)[:, 1:]
    columns[:, :num_dense] = (columns[:, :num_dense] - 5) / 3
    logits = columns @ random.normal(size=columns.shape[1]) - 1
    labels = (random.random(num_rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return MemoryRows(schema, Rows(labels, dense, unlabelled.ids, weights))
