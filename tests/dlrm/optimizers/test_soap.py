"""SOAP: equal to its formula in float64, to the library's without damping, and to AdamW without factors."""

import numpy as np
import pytest
import torch
from pytorch_optimizer import SOAP
from torch.nn import Parameter
from torch.optim import AdamW

from dlrm.optimizers import soap
from dlrm.optimizers.soap import Soap
from tests.dlrm.optimizers.steps import assert_same, draw_parameters, make_optimizer, select_matrices, take_steps

SETTINGS = {"beta1": 0.9, "beta2": 0.8, "shampoo_beta": 0.7, "eps": 1e-3}


class Reference:
    """SOAP on one matrix in numpy's float64, from algorithms 3 and 4 of Vyas et al. 2024 (arXiv 2409.11321), with
    Adam's bias correction, a first step that only measures, and the damping of `soap.DAMPING`."""

    def __init__(self, weights: np.ndarray, rate: float, weight_decay: float, every: int, max_dim: int) -> None:
        self.weights, self.rate, self.weight_decay, self.every = weights, rate, weight_decay, every
        rows, columns = weights.shape
        self.has_left, self.has_right = rows <= max_dim, columns <= max_dim
        self.left, self.right = np.zeros((rows, rows)), np.zeros((columns, columns))
        self.left_basis, self.right_basis = np.eye(rows), np.eye(columns)
        self.mean, self.mean_square = np.zeros_like(weights), np.zeros_like(weights)
        self.num_steps = -1

    def step(self, gradient: np.ndarray) -> None:
        self.num_steps += 1
        t, beta1, beta2 = self.num_steps, SETTINGS["beta1"], SETTINGS["beta2"]
        if t > 0:
            rotated = self.left_basis.T @ gradient @ self.right_basis
            self.mean = beta1 * self.mean + (1 - beta1) * gradient
            self.mean_square = beta2 * self.mean_square + (1 - beta2) * rotated**2
            root = np.sqrt(self.mean_square / (1 - beta2**t)) + SETTINGS["eps"]
            normalised = self.left_basis.T @ self.mean @ self.right_basis / (1 - beta1**t) / root
            update = self.left_basis @ normalised @ self.right_basis.T
            self.weights = self.weights - self.rate * (self.weight_decay * self.weights + update)
        kept = SETTINGS["shampoo_beta"]
        self.left = kept * self.left + (1 - kept) * gradient @ gradient.T
        self.right = kept * self.right + (1 - kept) * gradient.T @ gradient
        if self.has_left:
            self.left_basis, self.mean_square = self._turn(self.left, self.left_basis, self.mean_square)
        if self.has_right:
            self.right_basis, turned = self._turn(self.right, self.right_basis, self.mean_square.T)
            self.mean_square = turned.T

    def _turn(self, factor: np.ndarray, basis: np.ndarray, mean_square: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = len(factor)
        damped = factor + soap.DAMPING * np.trace(factor) * np.diag(np.arange(size, 0, -1) / size)
        if self.num_steps == 0:
            return np.linalg.eigh(damped)[1][:, ::-1], mean_square
        if self.num_steps % self.every:
            return basis, mean_square
        eigenvalues = np.diag(basis.T @ damped @ basis)
        order = np.argsort(-eigenvalues)
        return np.linalg.qr(damped @ basis[:, order])[0], mean_square[order]


@pytest.mark.parametrize("max_dim", [100, 5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_twenty_steps_follow_the_formula_in_float64(dtype: torch.dtype, weight_decay: float, max_dim: int):
    named = {name: value for name, value in draw_parameters(dtype=dtype).items() if value.ndim == 2}
    references = {
        name: Reference(value.detach().double().numpy().copy(), 0.01, weight_decay, every=3, max_dim=max_dim)
        for name, value in named.items()
    }
    optimizer = make_optimizer(
        named,
        name="soap",
        learning_rate=0.01,
        weight_decay=weight_decay,
        precondition_every=3,
        max_precondition_dim=max_dim,
        **SETTINGS,
    )
    for step in range(20):
        take_steps(optimizer, named.values(), 1, seed=step)
        for name, value in named.items():
            assert value.grad is not None
            references[name].step(value.grad.double().numpy())
    expected = {name: Parameter(torch.from_numpy(reference.weights)) for name, reference in references.items()}
    found = {name: Parameter(value.detach().double()) for name, value in named.items()}
    assert_same(found, expected, 1e-9 if dtype == torch.float64 else 1e-5)


def test_without_damping_it_is_that_of_the_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(soap, "DAMPING", 0.0)
    # Square matrices have no direction without a gradient, whose eigenvectors would be arbitrary.
    ours, theirs = ({"w": Parameter(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))} for _ in range(2))
    # The library adds eps to a root that is not corrected, hence a small one.
    settings = {"lr": 0.01, "betas": (0.9, 0.8), "shampoo_beta": 0.7, "eps": 1e-30, "weight_decay": 0.0}
    take_steps(Soap(ours.values(), **settings, precondition_every=5), ours.values(), 50)
    take_steps(SOAP(theirs.values(), **settings, precondition_frequency=5), theirs.values(), 50)
    assert_same(ours, theirs, 1e-4)


def test_without_factors_it_is_adamw():
    ours, theirs = draw_parameters(dtype=torch.float64), draw_parameters(dtype=torch.float64)
    settings = {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1}
    take_steps(Soap(ours.values(), **settings, max_precondition_dim=1), ours.values(), 50)
    take_steps(AdamW(theirs.values(), **settings), theirs.values(), 50)
    assert_same(ours, theirs, 1e-12)


def test_the_first_step_measures_matrices_and_moves_vectors():
    named, before = draw_parameters(), draw_parameters()
    take_steps(make_optimizer(named, name="soap", learning_rate=0.1), named.values(), 1)
    for name, value in named.items():
        assert torch.equal(value, before[name]) == (value.ndim == 2), name


def test_rows_and_columns_without_a_gradient_stay_where_they_are():
    """As of dead neurons and of inputs that are always 0; divided by rounding, they moved by whole steps."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(24, 16, generator=generator)
    moved = Parameter(weights.clone())
    optimizer = Soap([moved], lr=0.1)
    for _ in range(30):
        moved.grad = torch.randn(24, 16, generator=generator)
        moved.grad[[3, 17]], moved.grad[:, 5] = 0.0, 0.0
        optimizer.step()
    is_same = moved.detach() == weights
    assert is_same[[3, 17]].all()
    assert is_same[:, 5].all()
    assert is_same.sum() == 2 * 16 + 24 - 2


@pytest.mark.slow
def test_bases_stay_orthogonal_and_turn_the_factors_to_diagonals():
    named = draw_parameters(dtype=torch.float64)
    optimizer = make_optimizer(named, name="soap", precondition_every=1, shampoo_beta=0.999)
    take_steps(optimizer, named.values(), 1000)
    for value in select_matrices(named):
        state = optimizer.state[value]
        for side, size in zip(soap.SIDES, value.shape, strict=True):
            basis = state[f"{side}_basis"]
            torch.testing.assert_close(basis.T @ basis, torch.eye(size, dtype=basis.dtype))
            turned = basis.T @ state[side] @ basis
            assert (turned - turned.diag().diag()).norm() < 0.05 * turned.norm()


def test_turned_weights_and_gradients_take_turned_steps(monkeypatch: pytest.MonkeyPatch):
    """Adam depends on the axes; without damping, SOAP does not."""
    monkeypatch.setattr(soap, "DAMPING", 0.0)
    generator = torch.Generator().manual_seed(4)
    start, *gradients = torch.randn(11, 5, 5, generator=generator, dtype=torch.float64)
    turn, _ = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64))
    plain, turned = Parameter(start.clone()), Parameter(turn @ start)
    for weights, rotation in ((plain, torch.eye(5, dtype=torch.float64)), (turned, turn)):
        optimizer = Soap([weights], lr=0.1, precondition_every=2)
        for gradient in gradients:
            weights.grad = rotation @ gradient
            optimizer.step()
    assert (plain - start).norm() > 0.5
    torch.testing.assert_close(turned.detach(), turn @ plain.detach())
