"""Means that forget by samples where the batch grows, against their sums over all steps in float64."""

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from dlrm.optimizers import SampleMemory
from tests.dlrm.optimizers.steps import assert_same, draw_parameters, make_optimizer, take_steps

GROWTH = [1.0] * 6 + [1.1875] * 3 + [4.0] * 4 + [32.0] * 3
"""Samples of each step as a multiple of those of the first batch."""
NAMES = ("adam", "adamw", "nadamw", "lamb", "soap", "schedule_free")
BETA1, BETA2, SHAMPOO_BETA, EPS = 0.9, 0.99, 0.8, 1e-3


def average(beta: float, values: list[np.ndarray], growth: list[float]) -> np.ndarray:
    """The mean that keeps beta^k in a step of k times the samples, without the bias of its beginning at 0."""
    kept = [beta**k for k in growth]
    weights = [(1 - kept[i]) * np.prod(kept[i + 1 :]) for i in range(len(kept))]
    assert sum(weights) == pytest.approx(1 - beta ** sum(growth))
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


def train(name: str, named: dict[str, Parameter]) -> tuple[torch.optim.Optimizer, dict[str, list[np.ndarray]]]:
    """Train at the sizes of GROWTH; return the optimizer and the gradients of each step."""
    betas = {"beta1": BETA1, "beta2": BETA2} | ({"shampoo_beta": SHAMPOO_BETA} if name == "soap" else {})
    optimizer = make_optimizer(named, name=name, learning_rate=0.01, weight_decay=0.0, eps=EPS, **betas)
    memory = SampleMemory(optimizer)
    gradients: dict[str, list[np.ndarray]] = {parameter: [] for parameter in named}
    for step, memory.growth in enumerate(GROWTH):
        take_steps(optimizer, named.values(), 1, seed=step)
        for parameter, value in named.items():
            assert value.grad is not None
            gradients[parameter].append(value.grad.numpy().copy())
    return optimizer, gradients


@pytest.mark.parametrize("name", NAMES)
def test_half_lives_are_constant_in_samples(name: str):
    named = draw_parameters(dtype=torch.float64)
    optimizer, gradients = train(name, named)
    for parameter, value in named.items():
        state, past = optimizer.state[value], gradients[parameter]
        # The first step of SOAP is only measured on matrices, whose squares are rotated.
        is_rotated = name == "soap" and value.ndim == 2
        growth = GROWTH[1:] if is_rotated else GROWTH
        past = past[1:] if is_rotated else past
        assert state["step"].item() == pytest.approx(sum(growth), rel=1e-6)
        if "exp_avg" in state:
            mean = average(BETA1, past, growth) * (1 - BETA1 ** sum(growth))
            np.testing.assert_allclose(state["exp_avg"].numpy(), mean, rtol=1e-9, atol=1e-12)
        if not is_rotated:
            squares = average(BETA2, [gradient**2 for gradient in past], growth) * (1 - BETA2 ** sum(growth))
            np.testing.assert_allclose(state["exp_avg_sq"].numpy(), squares, rtol=1e-9, atol=1e-12)
        else:
            products = [gradient @ gradient.T for gradient in gradients[parameter]]
            left = average(SHAMPOO_BETA, products, GROWTH) * (1 - SHAMPOO_BETA ** sum(GROWTH))
            np.testing.assert_allclose(state["left"].numpy(), left, rtol=1e-9, atol=1e-12)


def test_adam_moves_by_means_without_the_bias_of_their_beginning():
    named = draw_parameters(dtype=torch.float64)
    weights = {name: value.detach().numpy().copy() for name, value in named.items()}
    _, gradients = train("adam", named)
    for name, past in gradients.items():
        for i in range(len(GROWTH)):
            so_far, growth = past[: i + 1], GROWTH[: i + 1]
            root = np.sqrt(average(BETA2, [gradient**2 for gradient in so_far], growth))
            weights[name] -= 0.01 * average(BETA1, so_far, growth) / (root + EPS)
        # The count of steps is fp32, as in torch's Adam.
        np.testing.assert_allclose(named[name].detach().numpy(), weights[name], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_batches_of_one_size_are_trained_as_without_it_bit_for_bit(name: str):
    ours, plain = draw_parameters(), draw_parameters()
    first, second = make_optimizer(ours, name=name), make_optimizer(plain, name=name)
    SampleMemory(first)
    take_steps(first, ours.values(), 5)
    take_steps(second, plain.values(), 5)
    assert_same(ours, plain, 0.0)
