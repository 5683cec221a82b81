"""Groups of parameters by pattern: claimed once, all of them, and numbered in checkpoints as in the model."""

from typing import Any

import pytest
import torch

from dlrm.data.errors import DataError
from tests.dlrm.optimizers.steps import SHAPES, assert_same, draw_parameters, make_optimizer, take_steps


def read_settings(named: dict[str, Any], **document: Any) -> dict[str, tuple[float, float, bool]]:
    """By name of a parameter, what its group says of it."""
    names = {id(parameter): name for name, parameter in named.items()}
    return {
        names[id(parameter)]: (group["rate_factor"], group["weight_decay"], group["is_trust_scaled"])
        for group in make_optimizer(named, **document).param_groups
        for parameter in group["params"]
    }


def test_without_groups_matrices_have_decay_and_trust_ratio_and_vectors_do_not():
    found = read_settings(draw_parameters(), name="lamb", weight_decay=0.1)
    assert found == {name: (1.0, 0.1, True) if "weight" in name else (1.0, 0.0, False) for name in SHAPES}


def test_the_first_pattern_that_matches_claims_a_parameter():
    groups = [
        {"parameters": "bottom.*", "learning_rate_factor": 0.1, "trust_ratio": False},
        {"parameters": "*.bias", "weight_decay": 0.5, "trust_ratio": True},
        {"parameters": "*", "weight_decay": 0.0},
    ]
    assert read_settings(draw_parameters(), name="lars", weight_decay=0.2, groups=groups) == {
        "bottom.0.weight": (0.1, 0.2, False),
        "bottom.0.bias": (0.1, 0.0, False),
        "top.0.bias": (1.0, 0.5, True),
        "top.0.weight": (1.0, 0.0, True),
    }


def test_parameters_that_are_trained_alike_share_a_group_of_the_optimizer():
    groups = [{"parameters": "top.*"}, {"parameters": "bottom.*"}]
    assert len(make_optimizer(draw_parameters(), name="adam", groups=groups).param_groups) == 1
    assert len(make_optimizer(draw_parameters(), name="lamb", groups=groups).param_groups) == 2


def test_a_parameter_that_no_group_claims_is_refused():
    with pytest.raises(DataError) as caught:
        make_optimizer(draw_parameters(), groups=[{"parameters": "bottom.*"}, {"parameters": "top.*.bias"}])
    assert caught.value.field == "dense_optimizer.groups"
    assert str(caught.value) == (
        'dense_optimizer.groups: no group claims top.0.weight (valid: a last group with parameters "*")'
    )


@pytest.mark.parametrize("patterns", [["*", "top.*"], ["middle.*", "*"], ["TOP.*", "*"]])
def test_a_pattern_that_claims_nothing_is_refused(patterns: list[str]):
    with pytest.raises(DataError, match="claims no parameter") as caught:
        make_optimizer(draw_parameters(), groups=[{"parameters": pattern} for pattern in patterns])
    number = 1 if patterns[0] == "*" else 0
    assert caught.value.field == f"dense_optimizer.groups.{number}.parameters"
    assert repr(patterns[number]) in str(caught.value)
    assert all(name in caught.value.valid for name in SHAPES)


def test_a_factor_of_zero_leaves_parameters_as_they_began():
    named = draw_parameters()
    groups = [{"parameters": "bottom.*", "learning_rate_factor": 0.0}, {"parameters": "*"}]
    take_steps(make_optimizer(named, name="adamw", groups=groups), named.values(), 5)
    for name, before in draw_parameters().items():
        assert torch.equal(named[name], before) == name.startswith("bottom."), name


@pytest.mark.parametrize(
    "name", ["momentum", "adam", "nadamw", "adagrad", "lars", "lamb", "soap", "adafactor", "schedule_free"]
)
def test_state_goes_to_the_same_parameters_whatever_the_groups(name: str):
    first, second = draw_parameters(), draw_parameters()
    groups = [{"parameters": "top.*"}, {"parameters": "*.bias", "weight_decay": 0.3}, {"parameters": "*"}]
    old, new = make_optimizer(first, name=name), make_optimizer(second, name=name, groups=groups)
    take_steps(old, first.values(), 3)
    state = old.state_dict()["state"]
    for number, parameter in enumerate(first.values()):
        kept = {
            key: value.shape
            for key, value in state[number].items()
            if key in ("momentum_buffer", "exp_avg", "exp_avg_sq", "sum")
        }
        assert set(kept.values()) == {parameter.shape}
    new.load_state_dict(old.state_dict())
    for before, after in zip(first.values(), second.values(), strict=True):
        assert all(torch.equal(old.state[before][key], value) for key, value in new.state[after].items())
    assert {group["weight_decay"] for group in new.param_groups} >= {0.3}


@pytest.mark.parametrize(
    "name", ["momentum", "adam", "adamw", "nadamw", "adagrad", "lars", "lamb", "soap", "adafactor", "schedule_free"]
)
def test_steps_after_a_round_trip_are_those_of_a_straight_run(name: str):
    straight, stopped = draw_parameters(), draw_parameters()
    optimizer = make_optimizer(straight, name=name)
    take_steps(optimizer, straight.values(), 3)
    first = make_optimizer(stopped, name=name)
    take_steps(first, stopped.values(), 3)
    second = make_optimizer(stopped, name=name)
    second.load_state_dict(first.state_dict())
    take_steps(optimizer, straight.values(), 5, seed=2)
    take_steps(second, stopped.values(), 5, seed=2)
    assert_same(stopped, straight, 0.0)
