"""The columns that boosted trees are given.

Dense features are columns as they are. A feature of few ids is one column of categories. One of many ids is two columns
of numbers: the ids, since vocabularies number values by how frequent they are, and the label rate of the id. A list of
ids is the number of its ids.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrm.data.rows import DataSchema, Rows
from dlrm.yardsticks.rows import split_features

Matrix = NDArray[np.float32]

MAX_CATEGORIES = 255
"""Ids of a feature that is used as categories, at most: the limit of scikit-learn's trees."""
NUM_FOLDS = 5
PRIOR_ROWS = 10.0
"""Rows at the mean label rate that are added to the rows of an id, so that rare ids have a rate near the mean."""


@dataclass(frozen=True)
class TreeInputs:
    """Rule by which rows become columns."""

    schema: DataSchema
    rates: dict[int, Matrix]
    """Label rates [num_ids] of the ids of each feature of many ids, by number of the feature."""

    @property
    def categories(self) -> list[int]:
        """Numbers of the columns that are categories."""
        numbers: list[int] = []
        column = self.schema.num_dense
        for number, feature in enumerate(self.schema.features):
            if not feature.is_multi_hot and number not in self.rates:
                numbers.append(column)
            column += 1 + (number in self.rates)
        return numbers

    def encode(self, rows: Rows) -> Matrix:
        """Encode rows: [n, columns]."""
        ids = split_features(rows)
        return _stack_columns(self.schema, rows, {number: rates[ids[number]] for number, rates in self.rates.items()})


def make_tree_inputs(schema: DataSchema, rows: Rows) -> tuple[TreeInputs, Matrix]:
    """Make the columns for training rows, and return them with these rows encoded: [n, columns].

    The label rates of each fold of these rows come from the other folds: from its own label a rate would look better
    than it is.
    """
    weights = np.ones(rows.num_rows) if rows.weights is None else rows.weights.astype(np.float64)
    fold = np.arange(rows.num_rows) % NUM_FOLDS
    mean = np.average(rows.labels, weights=weights)
    rates: dict[int, Matrix] = {}
    rates_of_rows: dict[int, Matrix] = {}
    for number, (feature, ids) in enumerate(zip(schema.features, split_features(rows), strict=True)):
        if feature.is_multi_hot or feature.num_ids <= MAX_CATEGORIES:
            continue
        sums = np.bincount(ids, weights * (rows.labels - mean), feature.num_ids)
        totals = np.bincount(ids, weights, feature.num_ids) + PRIOR_ROWS
        rates[number] = (mean + sums / totals).astype(np.float32)
        rates_of_rows[number] = np.empty(rows.num_rows, dtype=np.float32)
        for own in (fold == index for index in range(NUM_FOLDS)):
            own_sums = np.bincount(ids[own], (weights * (rows.labels - mean))[own], feature.num_ids)
            own_totals = np.bincount(ids[own], weights[own], feature.num_ids)
            other_rates = mean + (sums - own_sums) / (totals - own_totals)
            rates_of_rows[number][own] = other_rates[ids[own]]
    return TreeInputs(schema, rates), _stack_columns(schema, rows, rates_of_rows)


def _stack_columns(schema: DataSchema, rows: Rows, rates: dict[int, Matrix]) -> Matrix:
    """Stack the columns of rows. rates: [n] rates of each feature of many ids, by number of the feature."""
    columns: list[NDArray[Any]] = [*rows.dense.T]
    for number, (feature, ids) in enumerate(zip(schema.features, split_features(rows), strict=True)):
        columns.append(rows.ids.lengths[number] if feature.is_multi_hot else ids)
        if number in rates:
            columns.append(rates[number])
    return np.stack(columns, axis=1, dtype=np.float32, casting="unsafe")
