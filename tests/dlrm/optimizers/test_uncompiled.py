"""torch's own optimizers without its compiler: the same steps, and the compiler is never imported."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from dlrm.optimizers.uncompiled import UncompiledAdagrad, UncompiledAdam, UncompiledAdamW, UncompiledSGD
from tests.dlrm.optimizers.steps import assert_same, draw_parameters, take_steps

PAIRS = [
    (UncompiledSGD, SGD, {"momentum": 0.9}),
    (UncompiledAdam, Adam, {}),
    (UncompiledAdamW, AdamW, {"weight_decay": 0.1}),
    (UncompiledAdagrad, Adagrad, {}),
]
ALL_STEP = """
import sys
from tests.dlrm.optimizers.steps import NAMES, draw_parameters, make_optimizer, take_steps
for name in NAMES:
    named = draw_parameters()
    optimizer = make_optimizer(named, name=name)
    take_steps(optimizer, named.values(), 2)
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
print("torch" in sys.modules, "torch._dynamo" in sys.modules)
"""


def make(kind: Any, named: dict[str, Parameter], settings: dict[str, Any]) -> Optimizer:
    return kind(named.values(), lr=0.1, foreach=True, **settings)


@pytest.mark.parametrize(("uncompiled", "original", "settings"), PAIRS)
def test_steps_are_those_of_torch_bit_for_bit_also_after_loaded_state(
    uncompiled: type[Optimizer], original: type[Optimizer], settings: dict[str, Any]
):
    def train(kind: type[Optimizer]) -> dict[str, Parameter]:
        named = draw_parameters()
        first, second = (make(kind, named, settings) for _ in range(2))
        take_steps(first, named.values(), 5)
        second.load_state_dict(first.state_dict())
        take_steps(second, named.values(), 5, seed=2)
        return named

    assert_same(train(uncompiled), train(original), 0.0)


@pytest.mark.parametrize(("uncompiled", "settings"), [(uncompiled, settings) for uncompiled, _, settings in PAIRS])
def test_a_step_records_no_operation_for_a_gradient(uncompiled: type[Optimizer], settings: dict[str, Any]):
    named = draw_parameters()
    optimizer = make(uncompiled, named, settings)
    assert torch.is_grad_enabled()
    take_steps(optimizer, named.values(), 2)
    assert torch.is_grad_enabled()
    assert all(value.is_leaf and value.requires_grad for value in named.values())


@pytest.mark.slow
def test_no_optimizer_imports_the_compiler():
    command = [sys.executable, "-c", ALL_STEP]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True False\n"
