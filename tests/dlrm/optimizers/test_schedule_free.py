"""Schedule-free AdamW: equal to its formula in float64 and to the library's; what it evaluates is its average."""

import numpy as np
import pytest
import torch
from pytorch_optimizer import ScheduleFreeAdamW
from torch.nn import Parameter
from torch.optim import AdamW

from dlrm.optimizers import set_average_weight, set_learning_rate
from dlrm.optimizers.schedule_free import ScheduleFree
from tests.dlrm.optimizers.steps import assert_same, draw_parameters, make_optimizer, take_steps

GROUPS = [
    {"parameters": "*.bias", "learning_rate_factor": 0.5, "weight_decay": 0.3},
    {"parameters": "*"},
]
RATES = [0.002 * step for step in range(1, 6)] + [0.01] * 15
"""Rates of a run with five steps of warm-up."""


class Reference:
    """Schedule-free AdamW on one tensor in numpy's float64, from algorithm 1 of Defazio et al. 2024 (arXiv 2405.15682),
    with Adam's correction of v in its denominator alone."""

    def __init__(self, weights: np.ndarray, rate_factor: float = 1.0, weight_decay: float = 0.0) -> None:
        self.trained, self.rate_factor, self.weight_decay = weights, rate_factor, weight_decay
        self.weights, self.gradients = [weights], list[np.ndarray]()
        self.batches: list[float] = []

    def step(self, gradient: np.ndarray, beta1: float, beta2: float, eps: float) -> None:
        """Make a step. Means are written as sums over all steps so far, not as recurrences."""
        self.gradients.append(gradient)
        t = len(self.gradients)
        squares = [(1 - beta2) * beta2 ** (t - 1 - i) * past**2 for i, past in enumerate(self.gradients)]
        root = np.sqrt(sum(squares) / (1 - beta2**t))
        update = gradient / (root + eps) + self.weight_decay * self.trained
        self.weights.append(self.weights[-1] - self.rate_factor * RATES[t - 1] * update)
        self.trained = (1 - beta1) * self.weights[-1] + beta1 * self.average

    @property
    def average(self) -> np.ndarray:
        """x, the mean of all z after a step, weighted by the squares of the rates and, where set, by the batches."""
        weights = np.square(RATES) * (self.batches or np.ones(len(RATES)))
        return np.average(self.weights[1:], axis=0, weights=weights[: len(self.gradients)])


def set_rate(optimizer: torch.optim.Optimizer, step: int) -> None:
    set_learning_rate(optimizer, RATES[step])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("groups", [[], GROUPS], ids=["no groups", "biases of their own"])
def test_a_run_with_a_warm_up_follows_the_formula_in_float64(
    groups: list[dict[str, object]], weight_decay: float, dtype: torch.dtype
):
    named = draw_parameters(dtype=dtype)
    references = {
        name: Reference(
            value.detach().double().numpy().copy(),
            rate_factor=0.5 if groups and "bias" in name else 1.0,
            weight_decay=weight_decay if "weight" in name else 0.3 if groups else 0.0,
        )
        for name, value in named.items()
    }
    settings = {"beta1": 0.8, "beta2": 0.99, "eps": 1e-3}
    optimizer = make_optimizer(named, name="schedule_free", weight_decay=weight_decay, groups=groups, **settings)
    assert isinstance(optimizer, ScheduleFree)
    for step in range(len(RATES)):
        set_rate(optimizer, step)
        take_steps(optimizer, named.values(), 1, seed=step)
        for name, value in named.items():
            assert value.grad is not None
            references[name].step(value.grad.double().numpy(), **settings)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    trained = {name: Parameter(torch.from_numpy(reference.trained)) for name, reference in references.items()}
    averages = {name: Parameter(torch.from_numpy(reference.average)) for name, reference in references.items()}
    assert_same({name: Parameter(value.detach().double()) for name, value in named.items()}, trained, tolerance)
    with optimizer.swap_in():
        assert_same({name: Parameter(value.detach().double()) for name, value in named.items()}, averages, tolerance)


def test_samples_count_alike_in_the_average_where_the_batch_grows():
    named = {"weight": Parameter(torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))}
    reference = Reference(named["weight"].detach().numpy().copy())
    reference.batches = [256.0] * 10 + [1024.0] * 5 + [8192.0] * 5
    optimizer = ScheduleFree(named.values(), lr=0.01, betas=(0.8, 0.99), eps=1e-3)
    for step, size in enumerate(reference.batches):
        set_average_weight(optimizer, size / 256)
        optimizer.param_groups[0]["lr"] = RATES[step]
        take_steps(optimizer, named.values(), 1, seed=step)
        assert named["weight"].grad is not None
        reference.step(named["weight"].grad.numpy(), 0.8, 0.99, 1e-3)
    with optimizer.swap_in():
        np.testing.assert_allclose(named["weight"].detach().numpy(), reference.average, rtol=1e-12)


def test_a_new_run_begins_at_the_earlier_average_and_gives_it_no_weight():
    named = draw_parameters(dtype=torch.float64)
    optimizer = ScheduleFree(named.values(), lr=0.01, betas=(0.9, 0.99))
    take_steps(optimizer, named.values(), 30)
    with optimizer.swap_in():
        begun = {name: value.detach().numpy().copy() for name, value in named.items()}
    optimizer.restart()
    optimizer.param_groups[0]["lr"] = 0.01 / 3
    visited: dict[str, list[np.ndarray]] = {name: [] for name in named}
    for step in range(4):
        take_steps(optimizer, named.values(), 1, seed=step)
        for name, value in named.items():
            visited[name].append(optimizer.state[value]["z"].numpy().copy())
    for name, average in optimizer.list_averages(named.items()).items():
        np.testing.assert_allclose(average.numpy(), np.mean(visited[name], axis=0), rtol=1e-12)
        # v goes on, so that the first step is no longer than the gradients of the earlier run let it be.
        assert np.abs(visited[name][0] - begun[name]).max() < 0.01


def test_it_is_that_of_the_library_where_its_warm_up_is():
    ours, theirs = draw_parameters(dtype=torch.float64), draw_parameters(dtype=torch.float64)
    first = ScheduleFree(ours.values(), lr=0.01, betas=(0.9, 0.99))
    second = ScheduleFreeAdamW(theirs.values(), lr=0.01, betas=(0.9, 0.99), warmup_steps=5)

    def warm_up(step: int) -> None:
        for group in first.param_groups:
            group["lr"] = 0.01 * min((step + 1) / 5, 1)

    take_steps(first, ours.values(), 50, before_step=warm_up)
    take_steps(second, theirs.values(), 50)
    assert_same(ours, theirs, 1e-9)
    second.eval()
    with first.swap_in():
        assert_same(ours, theirs, 1e-9)


def test_without_interpolation_it_trains_as_adamw_without_momentum():
    ours, theirs = draw_parameters(dtype=torch.float64), draw_parameters(dtype=torch.float64)
    settings = {"lr": 0.01, "betas": (0.0, 0.99), "weight_decay": 0.1}
    take_steps(ScheduleFree(ours.values(), **settings), ours.values(), 50)
    take_steps(AdamW(theirs.values(), **settings), theirs.values(), 50)
    assert_same(ours, theirs, 1e-12)


def test_an_evaluation_leaves_weights_and_average_as_they_were_bit_for_bit():
    evaluated, plain = draw_parameters(), draw_parameters()
    first, second = (make_optimizer(named, name="schedule_free") for named in (evaluated, plain))
    assert isinstance(first, ScheduleFree)
    assert isinstance(second, ScheduleFree)
    with first.swap_in():
        assert_same(evaluated, plain, 0.0)
    take_steps(first, evaluated.values(), 3)
    take_steps(second, plain.values(), 3)
    with first.swap_in():
        averages = {name: Parameter(value) for name, value in second.list_averages(plain.items()).items()}
        assert_same(evaluated, averages, 0.0)
        assert not torch.equal(evaluated["top.0.weight"], plain["top.0.weight"])
    take_steps(first, evaluated.values(), 3, seed=2)
    take_steps(second, plain.values(), 3, seed=2)
    assert_same(evaluated, plain, 0.0)


def test_steps_at_rate_zero_change_nothing():
    named, before = draw_parameters(), draw_parameters()
    optimizer = make_optimizer(named, name="schedule_free")
    set_learning_rate(optimizer, 0.0)
    take_steps(optimizer, named.values(), 3)
    assert_same(named, before, 0.0)


def test_loaded_state_brings_the_trained_weights_with_it():
    trained, fresh = draw_parameters(), draw_parameters(seed=5)
    first, second = (make_optimizer(named, name="schedule_free") for named in (trained, fresh))
    take_steps(first, trained.values(), 4)
    second.load_state_dict(first.state_dict())
    assert_same(fresh, trained, 0.0)
