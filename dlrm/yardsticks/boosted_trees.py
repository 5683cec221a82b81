"""Boosted trees on encoded rows, by LightGBM or scikit-learn, where one of them is installed."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrm.data.rows import Rows, RowSource
from dlrm.yardsticks.rows import choose_rows
from dlrm.yardsticks.tree_inputs import Matrix, TreeInputs, make_tree_inputs

MAX_ROWS = 300_000
"""Training rows that are used, at most."""
HELD_OUT_FRACTION = 0.1
"""Share of the training rows whose log-loss ends the training."""
MAX_TREES = 500
PATIENCE = 20
"""Trees without a smaller log-loss on the held-out rows after which no more are added."""
LEARNING_RATE = 0.1
Predict = Callable[[Matrix], NDArray[np.float64]]
"""Function that returns the logits [n] of encoded rows."""


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


def fit_boosted_trees(name: str, source: RowSource, max_bytes: int, num_threads: int) -> BoostedTrees:
    """Fit boosted trees on up to MAX_ROWS rows of `source`. name: the library's, see `find_boosted_trees`.

    max_bytes: bytes of packed rows that are used, at most; the fit takes a few times as much memory.
    """
    row_numbers = choose_rows(source.num_rows, min(MAX_ROWS, max_bytes // source.row_bytes))
    rows = source.read(row_numbers)
    inputs, matrix = make_tree_inputs(source.schema, rows)
    fit = _fit_lightgbm if name == "lightgbm" else _fit_hist_gradient_boosting
    return BoostedTrees(inputs, fit(inputs, matrix, rows, num_threads), len(row_numbers))


def _fit_lightgbm(inputs: TreeInputs, matrix: Matrix, rows: Rows, num_threads: int) -> Predict:
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
    early_stopping = lightgbm.early_stopping(PATIENCE, verbose=False)
    held_out = held_out.set_reference(fitted_on)
    booster = lightgbm.train(settings, fitted_on, MAX_TREES, valid_sets=[held_out], callbacks=[early_stopping])
    return lambda encoded: np.asarray(booster.predict(encoded, raw_score=True))


def _fit_hist_gradient_boosting(inputs: TreeInputs, matrix: Matrix, rows: Rows, num_threads: int) -> Predict:
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
        **settings,
    )
    with threadpool_limits(num_threads, "openmp"):
        trees.fit(matrix, rows.labels, sample_weight=rows.weights)
    return trees.decision_function
