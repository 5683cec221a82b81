"""Every optimizer: deterministic, converges, takes its rate, works in float64."""

import pytest
import torch
from torch.nn import Parameter

from dlrm.config import DenseOptimizerConfig
from dlrm.optimizers import make_dense_optimizer, set_learning_rate
from tests.dlrm.optimizers.steps import NAMES, assert_same, draw_parameters, make_optimizer, take_steps

RATES = {
    "sgd": 0.2,
    "momentum": 0.02,
    "adam": 0.05,
    "adamw": 0.05,
    "nadamw": 0.05,
    "adagrad": 0.5,
    "lars": 0.1,
    "lamb": 0.1,
    "soap": 0.05,
    "adafactor": 0.05,
    "schedule_free": 0.5,
}


@pytest.mark.parametrize("name", NAMES)
def test_the_same_gradients_give_the_same_weights_bit_for_bit(name: str):
    first, second = draw_parameters(), draw_parameters()
    for named in (first, second):
        take_steps(make_optimizer(named, name=name), named.values(), 20)
    assert_same(first, second, 0.0)
    assert not torch.equal(first["top.0.weight"], draw_parameters()["top.0.weight"])


@pytest.mark.parametrize("name", NAMES)
def test_a_quadratic_is_brought_to_its_least(name: str):
    target = {key: value.detach() for key, value in draw_parameters(seed=3).items()}
    named = draw_parameters()
    # With the default coefficient a rate that is right for matrices makes the exempt vectors diverge here.
    extra = {"trust_coefficient": 0.2} if name == "lars" else {}
    optimizer = make_optimizer(named, name=name, weight_decay=0.0, **extra)

    def loss() -> torch.Tensor:
        return torch.stack([(value - target[key]).square().sum() for key, value in named.items()]).sum() / 2

    begin = loss().item()
    for step in range(300):
        set_learning_rate(optimizer, RATES[name] * (1 - step / 300))
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert loss().item() < 1e-3 * begin


@pytest.mark.parametrize("name", NAMES)
def test_float64_parameters_stay_so_and_agree_with_float32(name: str):
    wide, narrow = draw_parameters(dtype=torch.float64), draw_parameters(dtype=torch.float64)
    narrow = {key: Parameter(value.detach().float()) for key, value in narrow.items()}
    wide = {key: Parameter(value.detach().double()) for key, value in narrow.items()}
    optimizer = make_optimizer(wide, name=name)
    take_steps(optimizer, wide.values(), 20)
    take_steps(make_optimizer(narrow, name=name), narrow.values(), 20)
    assert all(value.dtype == torch.float64 for value in wide.values())
    tensors = [(key, value) for state in optimizer.state.values() for key, value in state.items()]
    assert all(value.dtype == torch.float64 for key, value in tensors if key != "step")
    assert_same({key: Parameter(value.detach().double()) for key, value in narrow.items()}, wide, 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_rate_goes_to_every_group_times_its_factor(name: str):
    groups = [{"parameters": "top.*", "learning_rate_factor": 0.5}, {"parameters": "*"}]
    optimizer = make_optimizer(draw_parameters(), name=name, groups=groups, learning_rate=0.4)
    assert {group["lr"] for group in optimizer.param_groups} == {0.2, 0.4}
    set_learning_rate(optimizer, 3.0)
    assert {group["lr"] for group in optimizer.param_groups} == {1.5, 3.0}


@pytest.mark.parametrize("name", NAMES)
def test_a_step_on_zero_gradients_makes_the_state_that_any_step_makes(name: str):
    """A checkpoint is loaded into the state that such a step has made."""
    empty, stepped = draw_parameters(), draw_parameters()
    for value in empty.values():
        value.grad = torch.zeros_like(value)
    made_empty, made_stepped = make_optimizer(empty, name=name), make_optimizer(stepped, name=name)
    made_empty.step()
    take_steps(made_stepped, stepped.values(), 2)

    def shape(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, tuple[torch.dtype, torch.Size]]]:
        state = optimizer.state_dict()["state"]
        return {key: {name: (value.dtype, value.shape) for name, value in kept.items()} for key, kept in state.items()}

    assert shape(made_empty) == shape(made_stepped)


def test_the_whole_step_of_a_closure_is_one_of_torch():
    named = draw_parameters()
    optimizer = make_dense_optimizer(DenseOptimizerConfig(name="lamb"), named.items())

    def closure() -> float:
        loss = named["top.0.weight"].square().sum()
        loss.backward()
        return loss.item()

    before = {key: value.detach().clone() for key, value in named.items()}
    loss = optimizer.step(closure)
    assert loss == pytest.approx(before["top.0.weight"].square().sum().item())
    changed = {key for key, value in named.items() if not torch.equal(value, before[key])}
    assert changed == {"top.0.weight"}
