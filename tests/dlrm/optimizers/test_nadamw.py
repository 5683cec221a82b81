"""NAdamW: equal to its formula in float64, to AdamW without momentum, and to torch's NAdam where both are the same."""

import math

import numpy as np
import pytest
import torch
from torch.nn import Parameter
from torch.optim import AdamW, NAdam

from dlrm.optimizers.nadamw import NAdamW
from tests.dlrm.optimizers.steps import assert_same, draw_parameters, make_optimizer, take_steps

GROUPS = [
    {"parameters": "*.bias", "learning_rate_factor": 0.5, "weight_decay": 0.3},
    {"parameters": "*"},
]


class Reference:
    """NAdamW on one tensor in numpy's float64, from Choi et al. 2019 (arXiv 1910.05446), table 1, and the decoupled
    weight decay of Loshchilov & Hutter 2019."""

    def __init__(self, weights: np.ndarray, rate: float, weight_decay: float) -> None:
        self.weights, self.rate, self.weight_decay = weights, rate, weight_decay
        self.gradients: list[np.ndarray] = []

    def step(self, gradient: np.ndarray, beta1: float, beta2: float, eps: float) -> None:
        """Make step t. Means are written as sums over all gradients so far, not as recurrences."""
        self.gradients.append(gradient)
        t = len(self.gradients)
        ages = range(t - 1, -1, -1)
        mean = sum((1 - beta1) * beta1**age * past for age, past in zip(ages, self.gradients, strict=True))
        mean_square = sum((1 - beta2) * beta2**age * past**2 for age, past in zip(ages, self.gradients, strict=True))
        bias_correction = math.sqrt(1 - beta2**t) / (1 - beta1**t)
        nesterov = beta1 * mean + (1 - beta1) * gradient
        # eps is added to the corrected root, as in AdamW: sqrt(v) + eps' with eps' = eps sqrt(1 - beta2^t).
        update = bias_correction * nesterov / (np.sqrt(mean_square) + eps * math.sqrt(1 - beta2**t))
        self.weights = self.weights - self.rate * self.weight_decay * self.weights - self.rate * update


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("groups", [[], GROUPS], ids=["no groups", "biases of their own"])
def test_twenty_steps_follow_the_formula_in_float64(
    groups: list[dict[str, object]], weight_decay: float, dtype: torch.dtype
):
    named = draw_parameters(dtype=dtype)
    references = {
        name: Reference(
            value.detach().double().numpy().copy(),
            rate=0.01 * (0.5 if groups and "bias" in name else 1.0),
            weight_decay=weight_decay if "weight" in name else 0.3 if groups else 0.0,
        )
        for name, value in named.items()
    }
    settings = {"beta1": 0.95, "beta2": 0.99, "eps": 1e-3}
    optimizer = make_optimizer(
        named, name="nadamw", learning_rate=0.01, weight_decay=weight_decay, groups=groups, **settings
    )
    for step in range(20):
        take_steps(optimizer, named.values(), 1, seed=step)
        for name, value in named.items():
            assert value.grad is not None
            references[name].step(value.grad.double().numpy(), **settings)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    expected = {name: Parameter(torch.from_numpy(reference.weights)) for name, reference in references.items()}
    assert_same({name: Parameter(value.detach().double()) for name, value in named.items()}, expected, tolerance)


def test_the_first_update_counts_the_gradient_nearly_twice():
    """(beta1 (1 - beta1) + 1 - beta1) / (1 - beta1) = 1 + beta1 times Adam's first update, the gradient's sign."""
    named = draw_parameters()
    before = {key: value.detach().clone() for key, value in named.items()}
    optimizer = make_optimizer(named, name="nadamw", learning_rate=0.1, weight_decay=0.0, beta1=0.8)
    take_steps(optimizer, named.values(), 1)
    for key, value in named.items():
        assert value.grad is not None
        torch.testing.assert_close(before[key] - value, 0.18 * value.grad.sign(), rtol=1e-4, atol=0)


def test_without_momentum_it_is_adamw():
    ours, theirs = draw_parameters(dtype=torch.float64), draw_parameters(dtype=torch.float64)
    settings = {"lr": 0.01, "betas": (0.0, 0.99), "weight_decay": 0.1}
    take_steps(NAdamW(ours.values(), **settings), ours.values(), 50)
    take_steps(AdamW(theirs.values(), **settings), theirs.values(), 50)
    assert_same(ours, theirs, 1e-12)


def test_after_many_steps_it_steps_as_nadam_of_torch_without_a_schedule_of_beta1():
    """torch's mu_t = beta1 (1 - 0.96^(t psi) / 2) is beta1 for a large psi. Its m is divided by 1 - beta1^(t+1), ours
    by 1 - beta1^t: after 300 steps of zero gradients both are 1 in float64, and the updates before were 0."""
    ours, theirs = draw_parameters(dtype=torch.float64), draw_parameters(dtype=torch.float64)
    settings = {"lr": 0.01, "betas": (0.8, 0.99), "weight_decay": 0.1}
    pair = (
        (NAdamW(ours.values(), **settings), ours),
        (NAdam(theirs.values(), **settings, momentum_decay=1e9, decoupled_weight_decay=True), theirs),
    )
    for optimizer, named in pair:
        for value in named.values():
            value.grad = torch.zeros_like(value)
        for _ in range(300):
            optimizer.step()
        take_steps(optimizer, named.values(), 50)
    assert_same(ours, theirs, 1e-12)
