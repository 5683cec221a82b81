"""Nesterov momentum is that of torch to the bit; any optimizer has a limit of the gradient's norm."""

import math

import pytest
import torch
from torch.optim import SGD

from tests.dlrm.optimizers.steps import NAMES, assert_same, draw_parameters, make_optimizer, take_steps


def test_nesterov_momentum_is_that_of_torch():
    ours, theirs, plain = draw_parameters(), draw_parameters(), draw_parameters()
    document = {"name": "momentum", "learning_rate": 0.02, "momentum": 0.8}
    take_steps(make_optimizer(ours, **document, nesterov=True), ours.values(), 50)
    take_steps(SGD(theirs.values(), lr=0.02, momentum=0.8, nesterov=True), theirs.values(), 50)
    take_steps(make_optimizer(plain, **document), plain.values(), 50)
    assert_same(ours, theirs, 0.0)
    assert not torch.equal(ours["top.0.weight"], plain["top.0.weight"])


@pytest.mark.parametrize("name", NAMES)
def test_any_optimizer_steps_by_gradients_whose_norm_over_all_groups_is_limited(name: str):
    ours, theirs = draw_parameters(dtype=torch.float64), draw_parameters(dtype=torch.float64)
    groups = [{"parameters": "top.*", "learning_rate_factor": 0.5}, {"parameters": "*"}]
    document = {"name": name, "learning_rate": 0.01, "groups": groups}
    take_steps(make_optimizer(ours, **document, max_gradient_norm=2.0), ours.values(), 50)
    reference, norms = make_optimizer(theirs, **document), list[float]()

    def clip(*_: object) -> None:
        gradients = [value.grad for value in theirs.values() if value.grad is not None]
        norms.append(math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients)))
        for gradient in gradients:
            gradient.mul_(min(1.0, 2.0 / norms[-1]))

    reference.register_step_pre_hook(clip)
    take_steps(reference, theirs.values(), 50)
    # torch adds 1e-6 to the norm.
    assert_same(ours, theirs, 1e-5)
    assert min(norms) < 2.0 < max(norms)
