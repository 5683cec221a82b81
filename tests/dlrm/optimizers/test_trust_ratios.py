"""LARS and LAMB: equal to another implementation, to Momentum and Adam where the ratio is 1; exempt vectors."""

from collections.abc import Callable
from typing import Any

import pytest
import pytorch_optimizer
import torch
from torch.nn import Parameter
from torch.optim import SGD, Adam, AdamW, Optimizer

from dlrm.optimizers import set_learning_rate
from dlrm.optimizers.lamb import Lamb
from dlrm.optimizers.lars import Lars
from tests.dlrm.optimizers.steps import assert_same, draw_parameters, make_optimizer, select_matrices, take_steps

DECAYS = [0.0, 0.01]


def make_lars(named: dict[str, Parameter], weight_decay: float = 0.0, **settings: Any) -> Optimizer:
    return Lars(named.values(), lr=0.3, momentum=0.9, weight_decay=weight_decay, **settings)


def make_lamb(named: dict[str, Parameter], weight_decay: float = 0.0, **settings: Any) -> Optimizer:
    return Lamb(named.values(), lr=0.01, eps=1e-8, weight_decay=weight_decay, **settings)


@pytest.mark.parametrize("weight_decay", DECAYS)
def test_lars_matches_pytorch_optimizer_over_fifty_steps(weight_decay: float):
    """The same method there without nesterov and dampening: weight decay is added to the gradient, the ratio has no
    eps, the rate stands outside the velocity; vectors have neither ratio nor decay."""
    ours, theirs = draw_parameters(), draw_parameters()
    take_steps(make_optimizer(ours, name="lars", learning_rate=0.3, weight_decay=weight_decay), ours.values(), 50)
    reference = pytorch_optimizer.LARS(
        theirs.values(), lr=0.3, momentum=0.9, weight_decay=weight_decay, trust_coefficient=0.001
    )
    take_steps(reference, theirs.values(), 50)
    assert_same(ours, theirs, 1e-6)


@pytest.mark.parametrize("weight_decay", DECAYS)
def test_lamb_matches_pytorch_optimizer_over_fifty_steps(weight_decay: float):
    """The same method there under these settings:

    - `weight_decouple=False`: the decay is part of the update whose norm counts, as in the paper. `True` shrinks the
      weight beforehand and leaves the decay out of the norm.
    - `adam_debias=True`: otherwise the rate is divided by 1 - beta1^t, outside of the trust ratio.
    - Matrices whose norms are below 10: it clamps them there (the paper's phi), and it scales vectors too.
    - An eps that is small beside the norm of an update, to which it adds it too, and beside the root of the mean
      square. It does not correct the moments for their start (version 3 of the paper), so that its update, without
      eps, is (1 - beta1^t) / sqrt(1 - beta2^t) times ours. The ratio divides that out again; only weight decay must
      grow along, step by step, to weigh the same.
    """
    ours = {name: value for name, value in draw_parameters(dtype=torch.float64).items() if value.ndim > 1}
    theirs = {name: value for name, value in draw_parameters(dtype=torch.float64).items() if value.ndim > 1}
    take_steps(
        make_optimizer(ours, name="lamb", learning_rate=0.01, weight_decay=weight_decay, eps=1e-12), ours.values(), 50
    )
    reference = pytorch_optimizer.Lamb(theirs.values(), lr=0.01, eps=1e-12, weight_decouple=False, adam_debias=True)

    def scale_decay(step: int) -> None:
        to_uncorrected = (1 - 0.9 ** (step + 1)) / (1 - 0.999 ** (step + 1)) ** 0.5
        reference.param_groups[0]["weight_decay"] = weight_decay * to_uncorrected

    take_steps(reference, theirs.values(), 50, before_step=scale_decay)
    assert all(value.norm() < 10 for value in theirs.values())
    assert_same(ours, theirs, 1e-9)


@pytest.mark.parametrize("weight_decay", DECAYS)
def test_lars_at_ratio_one_is_momentum_bit_for_bit(weight_decay: float):
    ours, theirs = draw_parameters(), draw_parameters()
    take_steps(make_lars(ours, weight_decay, is_trust_scaled=False), ours.values(), 50)
    take_steps(SGD(theirs.values(), lr=0.3, momentum=0.9, weight_decay=weight_decay), theirs.values(), 50)
    assert_same(ours, theirs, 0.0)


def test_lamb_at_ratio_one_is_adam():
    ours, theirs = draw_parameters(), draw_parameters()
    take_steps(make_lamb(ours, is_trust_scaled=False), ours.values(), 50)
    take_steps(Adam(theirs.values(), lr=0.01, eps=1e-8), theirs.values(), 50)
    assert_same(ours, theirs, 1e-6)


def test_lamb_at_ratio_one_decays_as_adamw_does():
    """AdamW shrinks a weight before its update, LAMB adds the decay to the update: the same to the last digit."""
    ours, theirs = draw_parameters(dtype=torch.float64), draw_parameters(dtype=torch.float64)
    take_steps(make_lamb(ours, 0.1, is_trust_scaled=False), ours.values(), 50)
    take_steps(AdamW(theirs.values(), lr=0.01, eps=1e-8, weight_decay=0.1), theirs.values(), 50)
    assert_same(ours, theirs, 1e-12)


@pytest.mark.parametrize("make", [make_lars, make_lamb], ids=["lars", "lamb"])
@pytest.mark.parametrize("zero", ["weights", "gradients"])
def test_a_tensor_without_a_norm_has_ratio_one(make: Callable[..., Optimizer], zero: str):
    scaled, plain = ({"w": Parameter(torch.ones(3, 2))} for _ in range(2))
    for named, is_trust_scaled in ((scaled, True), (plain, False)):
        if zero == "weights":
            named["w"].data.zero_()
        named["w"].grad = torch.full((3, 2), 0.0 if zero == "gradients" else 0.5)
        make(named, is_trust_scaled=is_trust_scaled).step()
    assert_same(scaled, plain, 0.0)
    assert torch.equal(scaled["w"], torch.ones(3, 2)) == (zero == "gradients")
    assert torch.isfinite(scaled["w"]).all()


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_the_first_update_of_a_matrix_is_as_long_as_the_ratio_says(name: str):
    named = draw_parameters()
    before = {key: value.detach().clone() for key, value in named.items()}
    optimizer = make_optimizer(named, name=name, learning_rate=0.1, weight_decay=0.0)
    set_learning_rate(optimizer, 0.1)
    take_steps(optimizer, named.values(), 1)
    coefficient = 0.001 if name == "lars" else 1.0
    for key, value in named.items():
        length = (value.detach() - before[key]).norm()
        if value.ndim > 1:
            assert length == pytest.approx(0.1 * coefficient * before[key].norm().item(), rel=1e-4)
        elif name == "lars":
            assert value.grad is not None
            assert length == pytest.approx(0.1 * value.grad.norm().item(), rel=1e-4)
        else:
            assert length == pytest.approx(0.1 * value.numel() ** 0.5, rel=1e-3)


@pytest.mark.parametrize(
    "name",
    ["sgd", "momentum", "adam", "adamw", "nadamw", "adagrad", "lars", "lamb", "soap", "adafactor", "schedule_free"],
)
def test_weight_decay_leaves_vectors_alone(name: str):
    decayed, plain = draw_parameters(), draw_parameters()
    for named, weight_decay in ((decayed, 0.1), (plain, 0.0)):
        take_steps(make_optimizer(named, name=name, learning_rate=0.01, weight_decay=weight_decay), named.values(), 5)
    for key, value in plain.items():
        assert torch.equal(decayed[key], value) == (value.ndim < 2), key


def test_the_groups_of_lars_part_matrices_from_vectors():
    named = draw_parameters()
    groups = make_optimizer(named, name="lars").param_groups
    assert [(group["is_trust_scaled"], len(group["params"])) for group in groups] == [(True, 2), (False, 2)]
    assert groups[0]["params"] == select_matrices(named)
