"""Newton's method on the logistic loss, against the formula of its gradient."""

import numpy as np
import pytest

from dlrm.linear.inputs import BagInputs, DenseInputs, LinearInputs, SingleIdInputs
from dlrm.linear.newton import LogisticLoss, minimise

NUM_ROWS, NUM_IDS, NUM_TAGS = 400, 30, 8


def make_problem(penalty: float, seed: int = 0) -> tuple[LogisticLoss, np.ndarray]:
    """A loss over two numbers, an id and a list of each row; and the same inputs as columns [n, weights]."""
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(NUM_ROWS, 2)).astype(np.float32)
    ids = random.integers(0, NUM_IDS, NUM_ROWS)
    lengths = random.integers(0, 4, NUM_ROWS)
    rows = np.repeat(np.arange(NUM_ROWS), lengths)
    tags = random.integers(0, NUM_TAGS, len(rows))
    shares = 1 / lengths[rows]
    columns = np.zeros((NUM_ROWS, 1 + 2 + NUM_IDS + NUM_TAGS))
    columns[:, 0], columns[:, 1:3] = 1, numbers
    columns[np.arange(NUM_ROWS), 3 + ids] = 1
    np.add.at(columns, (rows, 3 + NUM_IDS + tags), shares)
    labels = (random.random(NUM_ROWS) < 1 / (1 + np.exp(-2 * columns @ random.normal(size=columns.shape[1])))).astype(
        float
    )
    row_weights = random.exponential(size=NUM_ROWS)
    blocks = [
        DenseInputs(numbers),
        SingleIdInputs(ids, NUM_IDS),
        BagInputs(tags, rows, shares, NUM_TAGS, NUM_ROWS),
    ]
    penalties = np.full(columns.shape[1], penalty)
    penalties[0] = 0
    return LogisticLoss(LinearInputs(NUM_ROWS, blocks), labels, row_weights / row_weights.sum(), penalties), columns


@pytest.mark.parametrize("penalty", [1e-4, 1e-2, 1.0])
def test_the_gradient_is_zero_at_the_weights_that_are_found(penalty: float) -> None:
    loss, columns = make_problem(penalty)
    weights = minimise(loss, np.zeros(columns.shape[1]), 1e-12)
    errors = 1 / (1 + np.exp(-(columns @ weights))) - loss.labels
    gradient = columns.T @ (loss.row_weights * errors) + loss.penalties * weights
    assert np.abs(gradient).max() < 1e-6


def test_the_loss_is_that_of_the_formula() -> None:
    loss, columns = make_problem(0.1)
    weights = np.random.default_rng(1).normal(size=columns.shape[1])
    logits = columns @ weights
    assert loss.inputs.multiply(weights) == pytest.approx(logits, abs=1e-6)
    probabilities = 1 / (1 + np.exp(-logits))
    likelihoods = np.where(loss.labels == 1, probabilities, 1 - probabilities)
    expected = -(loss.row_weights @ np.log(likelihoods)) + 0.05 * np.sum(weights[1:] ** 2)
    assert loss.compute(weights, logits) == pytest.approx(expected, rel=1e-10)


def test_another_start_leads_to_the_same_weights() -> None:
    loss, columns = make_problem(0.01)
    near, far = (minimise(loss, np.full(columns.shape[1], start), 1e-12) for start in (0.0, 2.0))
    assert far == pytest.approx(near, abs=1e-4)
