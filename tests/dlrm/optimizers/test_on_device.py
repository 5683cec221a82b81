"""Steps on a device: as many calls for many tensors as for few, and the same numbers and state as on a CPU."""

import pytest
import torch
from torch.nn import Parameter

from dlrm.optimizers import SampleMemory, dense, trust
from tests.dlrm.device_calls import ON_DEVICE, DeviceCalls
from tests.dlrm.optimizers.steps import (
    NAMES,
    WITH_MOMENTUM,
    assert_same,
    draw_parameters,
    make_optimizer,
    select_matrices,
    take_steps,
)

ONE_BY_ONE = ("soap", "adafactor")
"""Optimizers that take one matrix after another: SOAP rotates it, Adafactor sums its rows and its columns."""
FUSED = ("sgd", "momentum", "adam", "adamw")


def grow(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Let means forget by samples, of batches of twice the samples of the first, where the optimizer can."""
    if "betas" in optimizer.param_groups[0]:
        SampleMemory(optimizer).growth = 2.0
    return optimizer


def count_calls_of_a_step(num_layers: int, **document: object) -> list[str]:
    """Make the second step of layers of many shapes, the first of which makes the state."""
    shapes = {f"{n}.weight": (2 + n, 3) for n in range(num_layers)} | {f"{n}.bias": (2 + n,) for n in range(num_layers)}
    named = {name: Parameter(torch.empty(shape, device=ON_DEVICE)) for name, shape in shapes.items()}
    for parameter in named.values():
        parameter.grad = torch.empty_like(parameter)
    optimizer = grow(make_optimizer(named, **document))
    optimizer.step()
    with DeviceCalls() as calls:
        optimizer.step()
    return calls.names


@pytest.mark.parametrize(
    "document",
    [
        *({"name": name} for name in NAMES if name not in ONE_BY_ONE),
        *({"name": name, "momentum_dtype": "bf16"} for name in WITH_MOMENTUM if name not in ONE_BY_ONE),
    ],
    ids=str,
)
def test_many_tensors_take_a_device_as_many_calls_as_few(document: dict[str, str]):
    few = count_calls_of_a_step(2, **document)
    assert count_calls_of_a_step(20, **document) == few
    # Two groups, matrices and vectors.
    assert len(few) <= 40


def test_ratios_of_a_device_are_those_of_a_cpu_to_the_bit():
    on_cpu, on_device = (list[torch.Tensor](select_matrices(draw_parameters())) for _ in range(2))
    ratios = torch.tensor([0.3, 1.7])
    with torch.no_grad():
        trust.scale_each(on_cpu, ratios)
        trust.scale_by_factors(on_device, ratios)
    assert all(torch.equal(one, other) for one, other in zip(on_cpu, on_device, strict=True))


@pytest.mark.parametrize("is_fused_first", [True, False], ids=["from a GPU to a CPU", "from a CPU to a GPU"])
@pytest.mark.parametrize("name", FUSED)
def test_state_goes_on_where_the_other_kernels_left_it(
    name: str, is_fused_first: bool, monkeypatch: pytest.MonkeyPatch
):
    document = {"name": name, "learning_rate": 0.01, "weight_decay": 0.01}
    straight, moved = draw_parameters(), draw_parameters()
    expected = grow(make_optimizer(straight, **document))
    take_steps(expected, straight.values(), 20)
    take_steps(expected, straight.values(), 20, seed=2)

    def make(is_fused: bool) -> torch.optim.Optimizer:
        monkeypatch.setattr(dense, "_choose_kernels", lambda *_: {"fused" if is_fused else "foreach": True})
        return grow(make_optimizer(moved, **document))

    first, second = make(is_fused_first), make(not is_fused_first)
    assert bool(first.param_groups[0]["fused"]) == is_fused_first
    take_steps(first, moved.values(), 20)
    second.load_state_dict(first.state_dict())
    take_steps(second, moved.values(), 20, seed=2)
    assert_same(moved, straight, 1e-6)
