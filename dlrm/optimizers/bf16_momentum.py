"""Momentum of any optimizer kept in bf16 between steps, which halves its size in memory and in checkpoints."""

import torch
from torch.optim import Optimizer


def keep_in_bf16(optimizer: Optimizer, name: str) -> None:
    """Keep the state `name` of every parameter in bf16; `optimizer` itself computes in the parameter's own format.

    The state must change at each step by far more than bf16's relative precision of 2^-9, or rounding would keep it
    where it is: a mean over ten gradients does, Adam's mean square over a thousand does not.
    """

    def widen(optimizer: Optimizer, *_: object) -> None:
        for parameter, state in optimizer.state.items():
            if name in state:
                state[name] = state[name].to(parameter.dtype)

    def narrow(optimizer: Optimizer, *_: object) -> None:
        for state in optimizer.state.values():
            if name in state:
                state[name] = state[name].to(torch.bfloat16)

    optimizer.register_step_pre_hook(widen)
    optimizer.register_step_post_hook(narrow)
    # torch converts loaded state to the parameter's format.
    optimizer.register_load_state_dict_post_hook(narrow)
