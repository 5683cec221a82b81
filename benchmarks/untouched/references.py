"""References: logistic regression and LightGBM, with settings chosen by log-loss on a tenth of the training rows."""

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from benchmarks.untouched.features import Features
from benchmarks.untouched.results import LIGHTGBM, LOGISTIC_REGRESSION

HELD_OUT_FRACTION = 0.1
_HELD_OUT_SEED = 1
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Inverse strengths of the quadratic penalty of logistic regression."""
LEAVES = (31, 63)
"""Leaves of a tree. Neither number is best on every set."""
MAX_TREES = 3_000
PATIENCE = 50
"""Trees without a smaller log-loss on the held-out rows after which no more are added."""
_MAX_ITERATIONS = 300


@dataclass(frozen=True)
class Prediction:
    """Prediction of one reference."""

    probabilities: NDArray[np.float64]
    """[n] probabilities of the test rows."""
    detail: str
    """Settings that were chosen."""


Fit = Callable[[Features, Features], Prediction]
"""Function that fits a reference to the training rows, its first argument, and predicts the test rows."""


def list_references() -> Mapping[str, Fit]:
    """List the references whose libraries are installed, by name."""
    has_lightgbm = importlib.util.find_spec("lightgbm") is not None
    return {LOGISTIC_REGRESSION: predict_linear} | ({LIGHTGBM: predict_trees} if has_lightgbm else {})


def predict_linear(train: Features, test: Features) -> Prediction:
    """Fit logistic regression with every penalty; the best one is fitted to all training rows again."""
    held_out = _draw_held_out(train)
    losses = {}
    for penalty in PENALTIES:
        model = _fit_linear(penalty, train.one_hot[~held_out], train.labels[~held_out])
        losses[penalty] = log_loss(train.labels[held_out], model.predict_proba(train.one_hot[held_out]))
    best = min(losses, key=losses.__getitem__)
    model = _fit_linear(best, train.one_hot, train.labels)
    return Prediction(model.predict_proba(test.one_hot)[:, 1], f"C {best:g}")


def predict_trees(train: Features, test: Features) -> Prediction:
    """Fit LightGBM with each number of leaves; the one with the least log-loss on the held-out rows predicts."""
    import lightgbm  # pyright: ignore[reportMissingImports]

    held_out = _draw_held_out(train)
    fits = {}
    for num_leaves in LEAVES:
        settings = {
            "objective": "binary",
            "learning_rate": 0.05,
            "num_leaves": num_leaves,
            "min_data_per_group": 100,
            "num_threads": 1,
            "seed": 1,
            "verbose": -1,
        }
        fitted_on, validation = (
            lightgbm.Dataset(
                train.codes_and_numbers[rows],
                train.labels[rows],
                categorical_feature=list(range(train.num_categorical)),
                params=settings,
            )
            for rows in (~held_out, held_out)
        )
        validation = validation.set_reference(fitted_on)
        early_stopping = lightgbm.early_stopping(PATIENCE, verbose=False)
        model = lightgbm.train(settings, fitted_on, MAX_TREES, valid_sets=[validation], callbacks=[early_stopping])
        fits[num_leaves] = model
    best = min(fits, key=lambda num_leaves: fits[num_leaves].best_score["valid_0"]["binary_logloss"])
    detail = f"{best} leaves, {fits[best].best_iteration} trees"
    return Prediction(np.asarray(fits[best].predict(test.codes_and_numbers)), detail)


def _draw_held_out(train: Features) -> NDArray[np.bool_]:
    """Draw the training rows [n] that settings are chosen by, the same for all references."""
    return np.random.default_rng(_HELD_OUT_SEED).random(len(train.labels)) < HELD_OUT_FRACTION


def _fit_linear(penalty: float, features: object, labels: NDArray[np.int64]) -> LogisticRegression:
    with warnings.catch_warnings():
        # A fit that is stopped early is judged by its log-loss like any other.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=penalty, max_iter=_MAX_ITERATIONS).fit(features, labels)
