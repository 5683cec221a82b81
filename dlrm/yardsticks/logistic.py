"""Logistic regression on dense features and one-hot ids, with the L2 penalty that suits held-out training rows best."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.rows import DataSchema, Rows, RowSource
from dlrm.linear.inputs import BagInputs, DenseInputs, InputBlock, LinearInputs, SingleIdInputs, Vector
from dlrm.linear.newton import LogisticLoss, minimise
from dlrm.metrics.binary import EPSILON, log_loss
from dlrm.yardsticks.rows import choose_rows, split_features

MAX_ROWS = 1_000_000
"""Training rows that are used, at most."""
MAX_SELECTION_ROWS = 100_000
"""Training rows that the strength of the penalty is chosen on, at most."""
HELD_OUT_FRACTION = 0.1
"""Share of the training rows whose log-loss decides on the strength of the penalty."""
STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Values of C: the sum of the log-losses of all rows, times C, is added to half the square of the weights."""
SELECTION_TOLERANCE, TOLERANCE = 1e-4, 1e-6
"""Fall of the mean log-loss below which a fit ends."""


@dataclass(frozen=True)
class LogisticRegression:
    """A fitted logistic regression."""

    schema: DataSchema
    is_mean: bool
    """Whether the weights of a list of ids are averaged; otherwise they are summed."""
    weights: Vector
    """[1 + N + rows of all tables] bias, then the weights of dense features and of table rows."""
    strength: float
    """C, the inverse of the penalty."""
    num_rows: int
    """Training rows that were used."""

    def predict(self, rows: Rows) -> Vector:
        """Compute the logits [n] of rows."""
        ids = split_features(rows)
        num_ids = [feature.num_ids for feature in self.schema.features]
        return _make_inputs(rows, ids, num_ids, self.schema, is_mean=self.is_mean).multiply(self.weights)


@dataclass(frozen=True)
class _TrainingRows:
    """Rows to fit on. Only those table rows have a weight that occur in them: for the others the best one is 0."""

    inputs: LinearInputs
    """Inputs of n rows, dense features with zero mean and unit variance."""
    labels: Vector
    row_weights: Vector
    """[n] weights of the rows, with a mean of 1."""
    means: Vector
    """[N] of the dense features."""
    deviations: Vector
    """[N] standard deviations of the dense features; 1 if all values are the same."""
    positions: NDArray[np.int64]
    """Position of the weight of each table row that occurs, in `LogisticRegression.weights`."""
    num_weights: int
    """Length of `LogisticRegression.weights`."""

    def make_loss(self, strength: float, row_weights: Vector) -> LogisticLoss:
        penalties = np.full(self.inputs.num_weights, 1 / (strength * np.count_nonzero(row_weights)))
        penalties[0] = 0
        return LogisticLoss(self.inputs, self.labels, row_weights / row_weights.sum(), penalties)

    def make_start(self) -> Vector:
        """Make the weights of the constant predictor."""
        weights = np.zeros(self.inputs.num_weights)
        rate = np.clip(np.average(self.labels, weights=self.row_weights), EPSILON, 1 - EPSILON)
        weights[0] = np.log(rate / (1 - rate))
        return weights

    def expand(self, fitted: Vector) -> Vector:
        """Return the fitted weights as weights of dense features as they are read, and of all table rows."""
        num_dense = len(self.means)
        dense = fitted[1 : 1 + num_dense] / self.deviations
        weights = np.zeros(self.num_weights)
        weights[0] = fitted[0] - self.means @ dense
        weights[1 : 1 + num_dense] = dense
        weights[self.positions] = fitted[1 + num_dense :]
        return weights

    def restrict(self, weights: Vector) -> Vector:
        """Return weights, as `expand` makes them, as weights of standardised features and of the rows that occur."""
        dense = weights[1 : 1 + len(self.means)]
        bias = weights[:1] + self.means @ dense
        return np.concatenate([bias, dense * self.deviations, weights[self.positions]])


def fit_logistic_regression(source: RowSource, max_bytes: int, *, is_mean: bool) -> LogisticRegression:
    """Fit a logistic regression on up to MAX_ROWS rows of `source`.

    max_bytes: bytes of packed rows that are used, at most; the fit takes about three times as much memory. is_mean:
    whether the weights of a list of ids are averaged; otherwise they are summed. Raises ValueError if the weights of
    all these rows are 0.
    """
    max_rows = min(MAX_ROWS, max_bytes // source.row_bytes)
    row_numbers = choose_rows(source.num_rows, max_rows)
    few_numbers = choose_rows(source.num_rows, min(max_rows, MAX_SELECTION_ROWS))
    rows = _read_training_rows(source, few_numbers, is_mean=is_mean)
    strength, weights = _choose_strength(rows, STRENGTHS, rows.make_start())
    if len(row_numbers) > len(few_numbers):
        # More rows may ask for a neighbour of the strength that suits few; all of them would take too long.
        start, number = rows.expand(weights), STRENGTHS.index(strength)
        rows = _read_training_rows(source, row_numbers, is_mean=is_mean)
        strength, weights = _choose_strength(rows, STRENGTHS[max(number - 1, 0) : number + 2], rows.restrict(start))
    fitted = minimise(rows.make_loss(strength, rows.row_weights), weights, TOLERANCE)
    return LogisticRegression(source.schema, is_mean, rows.expand(fitted), strength, len(row_numbers))


def _choose_strength(rows: _TrainingRows, strengths: Sequence[float], start: Vector) -> tuple[float, Vector]:
    """Choose the strength with the smallest log-loss on held-out rows, from the strongest penalty on until it rises.

    strengths: ascending. start: weights to start the first fit from. Returns the strength and the weights fitted with
    it; if there are too few rows to hold any out, the middle one and `start`.
    """
    is_held_out = np.random.default_rng(0).random(len(rows.labels)) < HELD_OUT_FRACTION
    held_out, fitted_on = (np.where(mask, rows.row_weights, 0) for mask in (is_held_out, ~is_held_out))
    if not held_out.any() or not fitted_on.any():
        return strengths[len(strengths) // 2], start
    best, best_loss, weights = (strengths[0], start), np.inf, start
    for strength in strengths:
        weights = minimise(rows.make_loss(strength, fitted_on), weights, SELECTION_TOLERANCE)
        loss = log_loss(rows.labels, rows.inputs.multiply(weights), held_out)
        if loss > best_loss:
            break
        best, best_loss = (strength, weights), loss
    return best


def _read_training_rows(source: RowSource, row_numbers: NDArray[np.int64], *, is_mean: bool) -> _TrainingRows:
    """Read rows to fit on. Raises ValueError if the weights of all of them are 0."""
    schema, rows = source.schema, source.read(row_numbers)
    weights = np.ones(rows.num_rows) if rows.weights is None else rows.weights.astype(np.float64)
    if not weights.any():
        raise ValueError(f"the weights of the {rows.num_rows:,} training rows to fit on are all 0")
    weights /= weights.mean()
    means, deviations = _standardise(rows.dense, weights)
    ids = split_features(rows)
    num_present: list[int] = []
    positions: list[NDArray[np.int64]] = []
    start = 1 + schema.num_dense
    for of_feature, feature in zip(ids, schema.features, strict=True):
        is_present = np.zeros(feature.num_ids, dtype=np.bool_)
        is_present[of_feature] = True
        present = np.flatnonzero(is_present)
        # In place, as the rows are this function's own: a copy of all ids would double the memory.
        of_feature[:] = (np.cumsum(is_present) - 1)[of_feature]
        num_present.append(len(present))
        positions.append(start + present)
        start += feature.num_ids
    return _TrainingRows(
        inputs=_make_inputs(rows, ids, num_present, schema, is_mean=is_mean),
        labels=rows.labels.astype(np.float64),
        row_weights=weights,
        means=means,
        deviations=deviations,
        positions=np.concatenate([np.empty(0, dtype=np.int64), *positions]),
        num_weights=start,
    )


def _standardise(dense: NDArray[np.float32], weights: Vector) -> tuple[Vector, Vector]:
    """Bring each column to zero mean and unit variance, in place; return the means [N] and standard deviations [N].

    weights: [n] weights of the rows, with a mean of 1.
    """
    columns = DenseInputs(dense)
    means = columns.multiply_transposed(weights) / len(weights)
    dense -= means.astype(np.float32)
    deviations = np.sqrt(columns.multiply_transposed(weights, power=2) / len(weights))
    deviations[deviations == 0] = 1.0
    dense /= deviations.astype(np.float32)
    return means, deviations


def _make_inputs(
    rows: Rows, ids: Sequence[NDArray[np.int64]], num_ids: Sequence[int], schema: DataSchema, *, is_mean: bool
) -> LinearInputs:
    """Make the inputs of rows. ids, num_ids: ids of each feature, and their number."""
    blocks: list[InputBlock] = [DenseInputs(rows.dense)]
    for number, feature in enumerate(schema.features):
        if not feature.has_bags:
            blocks.append(SingleIdInputs(ids[number], num_ids[number]))
            continue
        lengths = rows.ids.lengths[number]
        row_of_id = np.repeat(np.arange(rows.num_rows), lengths)
        shares = 1 / lengths[row_of_id] if is_mean else np.ones(len(row_of_id))
        blocks.append(BagInputs(ids[number], row_of_id, shares, num_ids[number], rows.num_rows))
    return LinearInputs(rows.num_rows, blocks)
