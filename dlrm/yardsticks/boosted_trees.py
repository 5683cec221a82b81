"""Boosted trees on encoded rows, by LightGBM or scikit-learn, where one of them is installed.

Dense features are columns as they are. A feature of few ids is one column of categories. One of many ids is two columns
of numbers: the ids, since vocabularies number values by how frequent they are, and the label rate of the id. Values of
several ids are numbered first, as they are ordered by quotient and remainder. A list of ids is the number of its ids.
"""

import importlib.util
import io
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrm.data.rows import DataSchema, Feature, Rows, RowSource
from dlrm.yardsticks.rows import choose_rows, split_features

MAX_ROWS = 300_000
"""Training rows that are used, at most."""
HELD_OUT_FRACTION = 0.1
"""Share of the training rows whose log-loss ends the training."""
MAX_TREES = 500
PATIENCE = 20
"""Trees without a smaller log-loss on the held-out rows after which no more are added."""
LEARNING_RATE = 0.1
MAX_CATEGORIES = 255
"""Ids of a feature that is used as categories, at most: the limit of scikit-learn's trees."""
NUM_FOLDS = 5
PRIOR_ROWS = 10.0
"""Rows at the mean label rate that are added to the rows of an id, so that rare ids have a rate near the mean."""

Matrix = NDArray[np.float32]
Predict = Callable[[Matrix], NDArray[np.float64]]
"""Function that returns the logits [n] of encoded rows."""


@dataclass(frozen=True)
class TreeInputs:
    """Rule by which rows become columns."""

    schema: DataSchema
    keys: dict[int, NDArray[np.int64]]
    """Keys, ascending, of the values in the training rows of each feature with several ids a value; value i + 1 has key
    i, and 0 is for others."""
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
        ids = _number_values(self.schema, rows, self.keys)
        rates = {number: rates[ids[number]] for number, rates in self.rates.items()}
        return _stack_columns(self.schema, rows, ids, rates)


def make_tree_inputs(schema: DataSchema, rows: Rows) -> tuple[TreeInputs, Matrix]:
    """Make the columns for training rows, and return them with these rows encoded: [n, columns].

    The label rates of each fold of these rows come from the other folds: from its own label a rate would look better
    than it is.
    """
    weights = np.ones(rows.num_rows) if rows.weights is None else rows.weights.astype(np.float64)
    fold = np.arange(rows.num_rows) % NUM_FOLDS
    mean = np.average(rows.labels, weights=weights)
    keys = _find_keys(schema, rows)
    numbers = _number_values(schema, rows, keys)
    rates: dict[int, Matrix] = {}
    rates_of_rows: dict[int, Matrix] = {}
    for number, (feature, ids) in enumerate(zip(schema.features, numbers, strict=True)):
        num_ids = len(keys[number]) + 1 if number in keys else feature.num_ids
        if feature.is_multi_hot or num_ids <= MAX_CATEGORIES:
            continue
        sums = np.bincount(ids, weights * (rows.labels - mean), num_ids)
        totals = np.bincount(ids, weights, num_ids) + PRIOR_ROWS
        rates[number] = (mean + sums / totals).astype(np.float32)
        rates_of_rows[number] = np.empty(rows.num_rows, dtype=np.float32)
        for own in (fold == index for index in range(NUM_FOLDS)):
            own_sums = np.bincount(ids[own], (weights * (rows.labels - mean))[own], num_ids)
            own_totals = np.bincount(ids[own], weights[own], num_ids)
            other_rates = mean + (sums - own_sums) / (totals - own_totals)
            rates_of_rows[number][own] = other_rates[ids[own]]
    return TreeInputs(schema, keys, rates), _stack_columns(schema, rows, numbers, rates_of_rows)


def _make_keys(feature: Feature, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Make a number [n] of the k ids of each value, the last id first. More than 63 bits keep the first ids."""
    keys = np.zeros(len(ids) // feature.ids_per_value, dtype=np.int64)
    for of_value in reversed(ids.reshape(-1, feature.ids_per_value).T):
        keys = keys * feature.num_ids + of_value
    return keys


def _find_keys(schema: DataSchema, rows: Rows) -> dict[int, NDArray[np.int64]]:
    """Find the keys of the values in the rows, for each feature with several ids a value, by its number."""
    ids = split_features(rows)
    return {
        number: np.unique(_make_keys(feature, ids[number]))
        for number, feature in enumerate(schema.features)
        if feature.ids_per_value > 1 and not feature.is_multi_hot
    }


def _number_values(schema: DataSchema, rows: Rows, keys: dict[int, NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Number the values of each feature, row by row: by their ids, or by their keys if they have several ids."""
    found = split_features(rows)
    for number, known in keys.items():
        wanted = _make_keys(schema.features[number], found[number])
        places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        found[number] = np.where(known[places] == wanted, places + 1, 0)
    return found


def _stack_columns(
    schema: DataSchema, rows: Rows, numbers: list[NDArray[np.int64]], rates: dict[int, Matrix]
) -> Matrix:
    """Stack the columns of rows.

    numbers: of the values of each feature. rates: [n] rates of each feature of many ids, by number of the feature.
    """
    columns: list[NDArray[Any]] = [*rows.dense.T]
    for number, (feature, ids) in enumerate(zip(schema.features, numbers, strict=True)):
        columns.append(rows.ids.lengths[number] if feature.is_multi_hot else ids)
        if number in rates:
            columns.append(rates[number])
    return np.stack(columns, axis=1, dtype=np.float32, casting="unsafe")


@dataclass(frozen=True)
class BoostedTrees:
    """Fitted boosted trees."""

    inputs: TreeInputs
    predict_matrix: Predict
    num_rows: int
    """Training rows that were used."""

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Compute the logits [n] of rows."""
        return self.predict_matrix(self.inputs.encode(rows))


def find_boosted_trees() -> str | None:
    """Return the name of the installed library, as `dlrm.record.YARDSTICKS` has it; None if absent."""
    if importlib.util.find_spec("lightgbm") is not None:
        return "lightgbm"
    return "hist_gradient_boosting" if importlib.util.find_spec("sklearn") is not None else None


def fit_boosted_trees(
    name: str, source: RowSource, max_bytes: int, num_threads: int, on_tree: Callable[[int], None] = lambda _: None
) -> BoostedTrees:
    """Fit boosted trees on up to MAX_ROWS rows of `source`. name: the library's, see `find_boosted_trees`.

    max_bytes: bytes of packed rows that are used, at most; the fit takes a few times as much memory. on_tree: called
    with the number of each tree.
    """
    row_numbers = choose_rows(source.num_rows, min(MAX_ROWS, max_bytes // source.row_bytes))
    rows = source.read(row_numbers)
    inputs, matrix = make_tree_inputs(source.schema, rows)
    fit = _fit_lightgbm if name == "lightgbm" else _fit_hist_gradient_boosting
    return BoostedTrees(inputs, fit(inputs, matrix, rows, num_threads, on_tree), len(row_numbers))


def _fit_lightgbm(
    inputs: TreeInputs, matrix: Matrix, rows: Rows, num_threads: int, on_tree: Callable[[int], None]
) -> Predict:
    import lightgbm  # pyright: ignore[reportMissingImports]

    settings = {
        "objective": "binary",
        "learning_rate": LEARNING_RATE,
        "num_threads": num_threads,
        "seed": 0,
        "deterministic": True,
        "verbose": -1,
    }
    is_held_out = np.random.default_rng(0).random(len(matrix)) < HELD_OUT_FRACTION
    fitted_on, held_out = (
        lightgbm.Dataset(
            matrix[mask],
            rows.labels[mask],
            weight=None if rows.weights is None else rows.weights[mask],
            categorical_feature=inputs.categories,
            params=settings,
        )
        for mask in (~is_held_out, is_held_out)
    )

    def count_tree(environment: Any) -> None:
        on_tree(environment.iteration + 1)

    early_stopping = lightgbm.early_stopping(PATIENCE, verbose=False)
    held_out = held_out.set_reference(fitted_on)
    booster = lightgbm.train(
        settings, fitted_on, MAX_TREES, valid_sets=[held_out], callbacks=[early_stopping, count_tree]
    )
    return lambda encoded: np.asarray(booster.predict(encoded, raw_score=True))


def _fit_hist_gradient_boosting(
    inputs: TreeInputs, matrix: Matrix, rows: Rows, num_threads: int, on_tree: Callable[[int], None]
) -> Predict:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    # scikit-learn documents numbers and lists where its types say str.
    settings: dict[str, Any] = {"categorical_features": inputs.categories or None, "early_stopping": True}
    trees = HistGradientBoostingClassifier(
        learning_rate=LEARNING_RATE,
        max_iter=MAX_TREES,
        validation_fraction=HELD_OUT_FRACTION,
        n_iter_no_change=PATIENCE,
        random_state=0,
        verbose=2,
        **settings,
    )
    # It says the number of a tree in its output alone.
    with threadpool_limits(num_threads, "openmp"), redirect_stdout(_TreeCounter(on_tree)):
        trees.fit(matrix, rows.labels, sample_weight=rows.weights)
    return trees.decision_function


class _TreeCounter(io.TextIOBase):
    """Output of scikit-learn that counts the lines with the number of a tree, such as `[7/500]`."""

    def __init__(self, on_tree: Callable[[int], None]) -> None:
        self._on_tree = on_tree
        self._num_trees = 0
        self._output = sys.stdout

    def write(self, text: str) -> int:
        if text.startswith("["):
            self._num_trees += 1
            with redirect_stdout(self._output):
                self._on_tree(self._num_trees)
        return len(text)
