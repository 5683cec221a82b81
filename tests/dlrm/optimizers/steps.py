"""Helpers for tests of optimizers: a few matrices and vectors, and steps on random gradients."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from dlrm.config import DenseOptimizerConfig
from dlrm.optimizers import make_dense_optimizer

SHAPES = {"bottom.0.weight": (8, 5), "bottom.0.bias": (8,), "top.0.weight": (3, 8), "top.0.bias": (3,)}
NAMES = ("sgd", "momentum", "adam", "adamw", "nadamw", "adagrad", "lars", "lamb", "soap", "adafactor", "schedule_free")
WITH_MOMENTUM = ("momentum", "adam", "adamw", "nadamw", "lars", "lamb", "soap", "adafactor")


def draw_parameters(seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return {name: Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for name, shape in SHAPES.items()}


def make_optimizer(named: dict[str, Parameter], **document: Any) -> Optimizer:
    return make_dense_optimizer(DenseOptimizerConfig.model_validate(document), named.items())


def select_matrices(named: dict[str, Parameter]) -> list[Parameter]:
    return [parameter for parameter in named.values() if parameter.ndim > 1]


def take_steps(
    optimizer: Optimizer,
    trained: Iterable[Parameter],
    num_steps: int,
    *,
    seed: int = 1,
    before_step: Callable[[int], None] | None = None,
) -> None:
    """Steps on random gradients, the same for the same seed and shapes, of sizes that differ from step to step."""
    generator, trained = torch.Generator().manual_seed(seed), list(trained)
    for step in range(num_steps):
        if before_step is not None:
            before_step(step)
        size = 10.0 ** torch.empty(()).uniform_(-2, 1, generator=generator)
        for parameter in trained:
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.grad = (size * noise).to(parameter)
        optimizer.step()


def assert_same(found: dict[str, Parameter], expected: dict[str, Parameter], relative: float) -> None:
    """Within `relative` of each tensor's norm; 0 is bit for bit."""
    for name, parameter in expected.items():
        distance = torch.linalg.vector_norm(found[name].detach() - parameter.detach())
        assert distance <= relative * torch.linalg.vector_norm(parameter.detach()), name
