"""Models of several tasks against the formulas of the papers, in float64."""

import re

import numpy as np
import pytest
import torch

from dlrm.config import ModelConfig, TaskConfig, TaskSharingConfig
from dlrm.model import make_dense_part, set_task_biases
from dlrm.model.task_loss import TaskLoss
from dlrm.model.tasks import TaskTop, multiply_probabilities
from tests.dlrm.model.small_models import SMALL_MODELS, TASKS, make_small_model

Weights = dict[str, np.ndarray]


def make_top(sharing: dict[str, object]) -> tuple[TaskTop, Weights]:
    config = make_small_model("dlrm", tasks=TASKS["tasks"], task_sharing=sharing)
    top = TaskTop(7, config, torch.Generator().manual_seed(3)).double()
    return top, {name: tensor.numpy() for name, tensor in top.state_dict().items()}


def apply_perceptron(weights: Weights, prefix: str, x: np.ndarray, *, is_last_activated: bool) -> np.ndarray:
    num_layers = sum(re.fullmatch(rf"{re.escape(prefix)}\.layers\.\d+\.weight", name) is not None for name in weights)
    for number in range(num_layers):
        x = x @ weights[f"{prefix}.layers.{number}.weight"].T + weights[f"{prefix}.layers.{number}.bias"]
        if number < num_layers - 1 or is_last_activated:
            x = np.maximum(x, 0)
    return x


def gate(weights: Weights, name: str, x: np.ndarray, experts: list[np.ndarray]) -> np.ndarray:
    """Softmax of a linear gate, times the experts."""
    scores = np.exp(x @ weights[f"{name}.weight"].T)
    shares = scores / scores.sum(axis=1, keepdims=True)
    assert shares.shape[1] == len(experts)
    return sum(shares[:, [e]] * expert for e, expert in enumerate(experts))


def apply_towers(weights: Weights, inputs: list[np.ndarray]) -> np.ndarray:
    towers = [apply_perceptron(weights, f"towers.{t}", x, is_last_activated=False) for t, x in enumerate(inputs)]
    return np.concatenate(towers, axis=1)


def test_gates_of_mmoe_mix_experts_as_its_paper_says():
    top, weights = make_top({"method": "mmoe", "num_experts": 3, "tower_mlp": [4]})
    x = np.random.default_rng(0).normal(size=(9, 7))
    experts = [apply_perceptron(weights, f"levels.0.shared.{e}", x, is_last_activated=True) for e in range(3)]
    expected = apply_towers(weights, [gate(weights, f"levels.0.gates.{t}", x, experts) for t in range(3)])
    np.testing.assert_allclose(top(torch.from_numpy(x)).detach().numpy(), expected, rtol=1e-12)


def test_levels_of_ple_extract_as_its_paper_says():
    sizes = {"num_experts": 2, "num_task_experts": 1, "num_levels": 3}
    top, weights = make_top({"method": "ple", **sizes, "tower_mlp": [4]})
    x = np.random.default_rng(0).normal(size=(9, 7))
    of_tasks, of_all = [x, x, x], x
    for level in range(3):
        name = f"levels.{level}"
        shared = [apply_perceptron(weights, f"{name}.shared.{e}", of_all, is_last_activated=True) for e in range(2)]
        own = [apply_perceptron(weights, f"{name}.own.{t}.0", of_tasks[t], is_last_activated=True) for t in range(3)]
        mixed = [gate(weights, f"{name}.gates.{t}", of_tasks[t], [own[t], *shared]) for t in range(3)]
        if level < 2:
            of_all = gate(weights, f"{name}.gates.3", of_all, [*own, *shared])
        of_tasks = mixed
    assert f"{name}.gates.3.weight" not in weights
    np.testing.assert_allclose(top(torch.from_numpy(x)).detach().numpy(), apply_towers(weights, of_tasks), rtol=1e-12)


def test_a_conditional_task_has_the_product_of_the_probabilities():
    z = torch.tensor([[0.3, -1.0, 0.5], [-40.0, 3.0, 1.0], [90.0, 300.0, -2.0]], dtype=torch.float64)
    found = multiply_probabilities(z, [None, 0, 1])
    p = 1 / (1 + np.exp(-z.numpy()))
    assert torch.equal(found[:, 0], z[:, 0])
    np.testing.assert_allclose(torch.sigmoid(found[:, 1]), p[:, 0] * p[:, 1], rtol=1e-12)
    np.testing.assert_allclose(torch.sigmoid(found[:, 2]), p.prod(axis=1), rtol=1e-12)
    assert multiply_probabilities(torch.tensor([[200.0, 200.0]]), [None, 0]).isfinite().all()


def test_gradients_of_a_product_are_those_of_the_entire_space_loss():
    z = torch.tensor([[0.3, -1.0], [2.0, 1.5]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    loss = TaskLoss([TaskConfig(name="click"), TaskConfig(name="buy", label="b", given="click")], TaskSharingConfig())
    loss.double()(multiply_probabilities(z, [None, 0]), labels, torch.ones(2).double()).backward()
    assert z.grad is not None
    ctr, cvr = torch.sigmoid(z.detach()).T
    product = ctr * cvr
    # d/dz of -y log p - (1 - y) log(1 - p), p = p_ctr p_cvr
    outer = -labels[:, 1] + (1 - labels[:, 1]) * product / (1 - product)
    torch.testing.assert_close(z.grad[:, 0], ctr - labels[:, 0] + outer * (1 - ctr), rtol=1e-10, atol=0)
    torch.testing.assert_close(z.grad[:, 1], outer * (1 - cvr), rtol=1e-10, atol=0)


@pytest.mark.parametrize("weighting", ["fixed", "uncertainty"])
def test_missing_labels_count_nothing_and_losses_are_the_papers(weighting: str):
    tasks = [TaskConfig.model_validate(task) for task in TASKS["tasks"]]
    loss = TaskLoss(tasks, TaskSharingConfig.model_validate({"loss_weighting": weighting})).double()
    s = np.zeros(3)
    if loss.log_variances is not None:
        s = np.array([0.3, -0.2, 0.5])
        loss.log_variances.offsets.data = torch.from_numpy(s)
    z = torch.tensor([[0.5, -1.0, 2.0], [1.0, 9.0, 0.1]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1.0, 0.0, 1.5], [0.0, torch.nan, torch.nan]], dtype=torch.float64)
    found = loss(z, labels, torch.tensor([2.0, 3.0], dtype=torch.float64))
    found.backward()

    def log_loss(label: float, logit: float) -> float:
        p = 1 / (1 + np.exp(-logit))
        return -np.log(p if label else 1 - p)

    def weigh(value: float, task: int) -> float:
        return float(value * np.exp(-s[task]) + s[task] / 2)

    first = weigh(log_loss(1, 0.5), 0) + 2 * weigh(log_loss(0, -1.0), 1) + 0.5 * weigh(0.5**2 / 2, 2)
    assert found.item() == pytest.approx(2 * first + 3 * weigh(log_loss(0, 1.0), 0), rel=1e-12)
    assert z.grad is not None
    assert z.grad[1, 1:].eq(0).all()


@pytest.mark.parametrize("architecture", [name for name in SMALL_MODELS if name != "finalmlp"])
def test_one_task_on_a_shared_bottom_is_the_plain_model(architecture: str):
    plain = make_dense_part(SMALL_MODELS[architecture], 3, 2, seed=1)
    tasked = make_dense_part(make_small_model(architecture, tasks=[{"name": "click"}]), 3, 2, seed=1)
    dense, pooled = torch.randn(5, 3), torch.randn(5, 2, 4)
    assert torch.equal(tasked(dense, pooled), plain(dense, pooled))


@pytest.mark.parametrize("architecture", [name for name in SMALL_MODELS if name != "finalmlp"])
def test_every_architecture_has_a_logit_for_each_task(architecture: str):
    model = make_dense_part(make_small_model(architecture, **TASKS), 3, 2, seed=1)
    assert model(torch.randn(5, 3), torch.randn(5, 2, 4)).shape == (5, 3)


def test_biases_begin_at_the_rates_of_the_labels():
    config = make_small_model("dlrm", **TASKS)
    model = make_dense_part(config, 3, 2, seed=1)
    nan = torch.nan
    labels = torch.tensor([[1, 1, 4.0], [1, 0, nan], [1, 0, 6.0], [1, 0, 5.0], [0, 0, nan]])
    assert config.tasks is not None
    set_task_biases(model, config.tasks, labels)
    biases = [layer.bias.item() for layer in model.output_layers]
    assert biases[1:] == pytest.approx([np.log(0.25 / 0.75), 5.0])


def test_dimensions_without_experts_are_refused():
    with pytest.raises(ValueError, match="has no widths of experts"):
        ModelConfig.model_validate({"top_mlp": [1], "tasks": [{"name": "a"}], "task_sharing": {"method": "mmoe"}})


def test_regression_of_large_numbers_keeps_their_digits_in_bf16():
    model = make_dense_part(make_small_model("dlrm", **TASKS), 3, 2, seed=1)
    with torch.no_grad():
        model.output_layers[2].bias.fill_(1000.0)
    dense, pooled = torch.randn(64, 3), torch.randn(64, 2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(dense, pooled)[:, 2]
    (found - 1000.7).square().sum().backward()
    expected = model.double()(dense.double(), pooled.double())[:, 2].detach()
    torch.testing.assert_close(found.detach().double(), expected, rtol=0, atol=0.05)
    bias = model.output_layers[2].bias
    assert bias.grad is not None
    assert bias.grad.item() == pytest.approx(2 * (expected - 1000.7).sum().item(), abs=0.5)
