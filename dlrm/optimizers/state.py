"""State of an optimizer: numbered by the place of its parameter in the model, its momentum in bf16 where set."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def number_as_in_model(optimizer: Optimizer, parameters: Sequence[Tensor]) -> None:
    """Number parameters in state dicts of `optimizer` by their index in `parameters`, and load only state from them.

    torch numbers parameters through the groups of an optimizer: with other groups, the state of a checkpoint would
    silently go to other parameters. The settings of the groups are not loaded: they come from the job.
    """
    indices = {id(parameter): index for index, parameter in enumerate(parameters)}

    def renumber(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        order = [indices[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
        return {
            "state": {order[number]: state for number, state in state_dict["state"].items()},
            "param_groups": [
                {**group, "params": [order[number] for number in group["params"]]}
                for group in state_dict["param_groups"]
            ],
        }

    def keep_groups(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        return {**state_dict, "param_groups": optimizer.state_dict()["param_groups"]}

    optimizer.register_state_dict_post_hook(renumber)
    optimizer.register_load_state_dict_pre_hook(keep_groups)


def keep_in_bf16(optimizer: Optimizer, name: str) -> None:
    """Keep the state `name` of every parameter in bf16 between steps, which halves its size in memory and checkpoints.

    `optimizer` itself computes in the dtype of the parameter: the state is widened before a step and rounded after it.
    It must change at each step by far more than 2^-9, the relative precision of bf16, or rounding would keep it where
    it is. A mean over ten gradients does (beta1 = 0.9); the mean square of Adam, over a thousand, does not.
    """

    def widen(optimizer: Optimizer, *_: object) -> None:
        _convert(optimizer, name, None)

    def narrow(optimizer: Optimizer, *_: object) -> None:
        _convert(optimizer, name, torch.bfloat16)

    optimizer.register_step_pre_hook(widen)
    optimizer.register_step_post_hook(narrow)
    # torch converts state to the dtype of the parameter when it loads it.
    optimizer.register_load_state_dict_post_hook(narrow)


@torch.no_grad()
def _convert(optimizer: Optimizer, name: str, dtype: torch.dtype | None) -> None:
    """Convert the state `name` of every parameter to `dtype`; None: to the parameter's own."""
    before = {parameter: state[name] for parameter, state in optimizer.state.items() if name in state}
    if not before:
        return
    after = [torch.empty_like(value, dtype=dtype or parameter.dtype) for parameter, value in before.items()]
    torch._foreach_copy_(after, list(before.values()))
    for parameter, value in zip(before, after, strict=True):
        optimizer.state[parameter][name] = value
