"""Tasks that are given another one, with missing labels: the rates that the loss recovers, in float64."""

from typing import Any

import numpy as np
import pytest
import torch

from dlrm.config import ModelConfig, TaskConfig, TaskSharingConfig, find_parents
from dlrm.data.rows import Rows, make_single_id_bags
from dlrm.data.task_labels import TaskLabels
from dlrm.metrics.filled_zeros import count_known_shares
from dlrm.metrics.tasks import compute_task_metrics
from dlrm.model import make_dense_part, set_known_shares
from dlrm.model.task_loss import TaskLoss
from dlrm.model.tasks import multiply_probabilities
from tests.dlrm.model.small_models import make_small_model

NUM_ROWS = 20_000
TASKS = [
    TaskConfig(name="click"),
    TaskConfig(name="cart", label="cart", given="click"),
    TaskConfig(name="buy", label="buy", given="cart"),
]


def draw_labels() -> tuple[np.ndarray, list[float]]:
    """Draw labels [n, 3], with half of `cart` and two thirds of `buy` missing; return the rates of known labels too."""
    random = np.random.default_rng(0)
    click, cart, buy = ((random.random(NUM_ROWS) < rate).astype(np.float32) for rate in (0.3, 0.5, 0.6))
    cart[random.random(NUM_ROWS) < 1 / 2] = np.nan
    buy[random.random(NUM_ROWS) < 2 / 3] = np.nan
    is_known = ~np.isnan(cart) & (click == 1)
    is_bought = is_known & (cart == 1)
    rates = [float(np.nanmean(values.astype(np.float64))) for values in (click, cart[is_known], buy[is_bought])]
    empty = np.empty((NUM_ROWS, 0), dtype=np.float32)
    ids = make_single_id_bags(np.empty((0, NUM_ROWS), dtype=np.int64))
    rows = Rows(click, empty, ids, None, np.stack([cart, buy], axis=1))
    return TaskLabels([0, 1], find_parents(TASKS)[1:]).choose(rows).all_labels, rates


def minimise(loss: Any, num_logits: int) -> torch.Tensor:
    z = torch.zeros(num_logits, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [z], max_iter=200, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def evaluate() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(z)
        value.backward()
        return value

    optimizer.step(evaluate)
    return z.detach()


def test_missing_labels_change_neither_the_learned_rates_nor_the_calibration():
    labels, rates = draw_labels()
    parents = find_parents(TASKS)
    loss = TaskLoss(TASKS, TaskSharingConfig()).double()
    loss.known_shares.copy_(torch.tensor(count_known_shares(labels, parents), dtype=torch.float64))
    known, weights = torch.from_numpy(labels).double(), torch.full((NUM_ROWS,), 1 / NUM_ROWS, dtype=torch.float64)

    def compute(z: torch.Tensor) -> torch.Tensor:
        return loss(multiply_probabilities(z.expand(NUM_ROWS, 3), parents), known, weights)

    z = minimise(compute, 3)
    np.testing.assert_allclose(torch.sigmoid(z).numpy(), rates, rtol=1e-6)
    logits = multiply_probabilities(z.expand(NUM_ROWS, 3), parents).float().numpy()
    metrics = compute_task_metrics(TASKS, labels, logits, None)
    for name in ("cart", "buy"):
        assert metrics[f"{name}.calibration"] == pytest.approx(1.0, rel=1e-5)


def test_labels_that_are_all_known_weigh_one():
    labels = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 0]], dtype=np.float32)
    assert count_known_shares(labels, [None, 0, 1]) == [1.0, 1.0, 1.0]


def test_a_model_learns_with_the_shares_of_its_training_rows():
    labels, _ = draw_labels()
    config: ModelConfig = make_small_model("dlrm", tasks=[task.model_dump() for task in TASKS])
    model = make_dense_part(config, 3, 2, seed=1)
    set_known_shares(model, TASKS, labels)
    assert isinstance(model.loss, TaskLoss)
    cart = labels[labels[:, 0] == 1, 1]
    assert model.loss.known_shares[1].item() == pytest.approx(np.mean(~np.isnan(cart)), rel=1e-6)
    assert "loss.known_shares" not in model.state_dict()
