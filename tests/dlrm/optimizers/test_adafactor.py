"""Adafactor: equal to its formula in float64, and to torch's where both are the same."""

import numpy as np
import pytest
import torch
from torch.nn import Parameter
from torch.optim import Adafactor as AdafactorOfTorch

from dlrm.optimizers.adafactor import Adafactor
from tests.dlrm.optimizers.steps import assert_same, draw_parameters, make_optimizer, take_steps


class Reference:
    """Adafactor on one tensor in numpy's float64: Shazeer & Stern 2018, algorithms 4 and 5, with the changes of Zhai et
    al. 2022, and the decoupled weight decay of Loshchilov & Hutter 2019."""

    def __init__(self, weights: np.ndarray, weight_decay: float) -> None:
        self.weights, self.weight_decay = weights, weight_decay
        self.t, self.mean = 0, np.zeros_like(weights)
        self.square, self.rows, self.columns = np.zeros_like(weights), np.zeros(()), np.zeros(())

    def step(self, gradient: np.ndarray, rate: float, beta1: float) -> None:
        self.t += 1
        beta2 = min(0.999, 1 - self.t**-0.8)
        square = gradient**2 + 1e-30
        if gradient.ndim == 2:
            self.rows = beta2 * self.rows + (1 - beta2) * square.sum(axis=1)
            self.columns = beta2 * self.columns + (1 - beta2) * square.sum(axis=0)
            self.square = np.outer(self.rows, self.columns) / self.rows.sum()
        else:
            self.square = beta2 * self.square + (1 - beta2) * square
        update = gradient / np.sqrt(self.square)
        update /= max(1.0, np.sqrt(np.mean(update**2)) / 1.0)
        self.mean = beta1 * self.mean + (1 - beta1) * update
        self.weights = self.weights - rate * self.weight_decay * self.weights - rate * self.mean


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("later_step", [1, 10_000], ids=["from the start", "where beta2 is at its limit"])
def test_fifty_steps_follow_the_formula_in_float64(later_step: int, dtype: torch.dtype):
    named = draw_parameters(dtype=dtype)
    references = {
        name: Reference(value.detach().double().numpy().copy(), 0.1 if value.ndim == 2 else 0.0)
        for name, value in named.items()
    }
    optimizer = make_optimizer(named, name="adafactor", learning_rate=0.01, weight_decay=0.1, beta1=0.8)
    for step in range(50):
        take_steps(optimizer, named.values(), 1, seed=step)
        for name, value in named.items():
            assert value.grad is not None
            references[name].step(value.grad.double().numpy(), rate=0.01, beta1=0.8)
            if step == 0:
                references[name].t = later_step
                optimizer.state[value]["step"].fill_(later_step)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    expected = {name: Parameter(torch.from_numpy(reference.weights)) for name, reference in references.items()}
    assert_same({name: Parameter(value.detach().double()) for name, value in named.items()}, expected, tolerance)


def test_without_momentum_it_is_adafactor_of_torch_at_a_rate_that_follows_no_norm():
    """torch's rate is lr times the largest of eps2 and RMS(w), and lr at most 1 / sqrt(t): so eps2 is large here, and
    lr small."""
    ours, theirs = draw_parameters(dtype=torch.float64), draw_parameters(dtype=torch.float64)
    take_steps(Adafactor(ours.values(), lr=0.01, beta1=0.0, weight_decay=0.1), ours.values(), 50)
    reference = AdafactorOfTorch(theirs.values(), lr=1e-5, eps=(1e-30, 1e3), weight_decay=100.0)
    take_steps(reference, theirs.values(), 50)
    assert_same(ours, theirs, 1e-12)


def test_what_never_had_a_gradient_stays_and_the_rest_of_its_matrix_moves():
    named = {"w": Parameter(torch.ones(3, 4))}
    optimizer = make_optimizer(named, name="adafactor", weight_decay=0.0, learning_rate=0.1)
    named["w"].grad = torch.zeros(3, 4)
    optimizer.step()
    named["w"].grad[1:, 1:] = 1e-3
    optimizer.step()
    assert torch.equal(named["w"][0], torch.ones(4))
    assert torch.equal(named["w"][:, 0], torch.ones(3))
    assert torch.all(named["w"][1:, 1:] < 1.0)
    assert torch.all(named["w"][1:, 1:] > 0.9)
