"""The state of optimizers: momentum in bf16 is close to fp32, and state survives a checkpoint unchanged."""

from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from tests.dlrm.optimizers.steps import WITH_MOMENTUM, assert_same, draw_parameters, make_optimizer, take_steps


def get_momentum_name(name: str) -> str:
    return "momentum_buffer" if name in ("momentum", "lars") else "exp_avg"


@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_it_is_kept_in_bf16_and_everything_else_in_fp32(name: str):
    named = draw_parameters()
    optimizer = make_optimizer(named, name=name, momentum_dtype="bf16")
    take_steps(optimizer, named.values(), 2)
    for state in optimizer.state.values():
        for key, value in state.items():
            assert value.dtype == (torch.bfloat16 if key == get_momentum_name(name) else torch.float32)


@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_one_step_reads_the_momentum_that_is_kept_and_rounds_it_once(name: str):
    rounded, exact = draw_parameters(), draw_parameters()
    narrow, wide = make_optimizer(rounded, name=name, momentum_dtype="bf16"), make_optimizer(exact, name=name)
    take_steps(narrow, rounded.values(), 1)
    take_steps(wide, exact.values(), 1)
    assert_same(rounded, exact, 0.0)
    for before, after in zip(exact.values(), rounded.values(), strict=True):
        expected = wide.state[before][get_momentum_name(name)]
        assert torch.equal(narrow.state[after][get_momentum_name(name)], expected.to(torch.bfloat16))


@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_fifty_steps_differ_by_roundings_of_the_momentum_alone(name: str):
    rounded, exact, begun = draw_parameters(), draw_parameters(), draw_parameters()
    take_steps(make_optimizer(rounded, name=name, momentum_dtype="bf16"), rounded.values(), 50)
    take_steps(make_optimizer(exact, name=name), exact.values(), 50)
    for key, value in exact.items():
        moved = (value - begun[key]).norm()
        # Each rounding is off by up to 2^-9 of the momentum; a mean over ten steps carries ten of them.
        assert 0 < (rounded[key] - value).norm() < 10 * 2**-9 * moved, key


@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_a_round_trip_is_bit_for_bit(name: str):
    straight, stopped = draw_parameters(), draw_parameters()
    optimizer = make_optimizer(straight, name=name, momentum_dtype="bf16")
    first, second = (make_optimizer(stopped, name=name, momentum_dtype="bf16") for _ in range(2))
    take_steps(optimizer, straight.values(), 3)
    take_steps(first, stopped.values(), 3)
    second.load_state_dict(first.state_dict())
    assert {state[get_momentum_name(name)].dtype for state in second.state.values()} == {torch.bfloat16}
    take_steps(optimizer, straight.values(), 5, seed=2)
    take_steps(second, stopped.values(), 5, seed=2)
    assert_same(stopped, straight, 0.0)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_it_goes_through_a_distributed_checkpoint_in_place(name: str, tmp_path: Path):
    straight, stopped = draw_parameters(), draw_parameters()
    first = make_optimizer(straight, name=name, momentum_dtype="bf16")
    take_steps(first, straight.values(), 3)
    save({"optimizer": first.state_dict()}, checkpoint_id=tmp_path, no_dist=True)

    second = make_optimizer(stopped, name=name, momentum_dtype="bf16")
    for parameter in stopped.values():
        parameter.grad = torch.zeros_like(parameter)
    second.step()
    state = {"optimizer": second.state_dict()}
    load(state, checkpoint_id=tmp_path, no_dist=True)
    second.load_state_dict(state["optimizer"])
    for parameter, trained in zip(stopped.values(), straight.values(), strict=True):
        parameter.data.copy_(trained.data)
    take_steps(first, straight.values(), 5, seed=2)
    take_steps(second, stopped.values(), 5, seed=2)
    assert_same(stopped, straight, 0.0)
