"""Optimizers of torch without its compiler: nothing is compiled here, and each rank starts a second sooner."""

import inspect
from typing import Any

import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer


def _unwrap(method: Any) -> Any:
    """Return a method of torch without the wrapper that keeps it out of compiled code."""
    return inspect.unwrap(method)


def _unwrap_step(method: Any) -> Any:
    """Return a step without its wrapper, whose other effect is that no operation is recorded for a gradient."""
    return torch.no_grad()(inspect.unwrap(method))


class Uncompiled(Optimizer):
    """Base class of optimizers that never import torch's compiler.

    torch's wrappers import it at their first call, only to make it leave the method alone: 0.8 s of a core and 70 MB in
    each rank.
    """

    add_param_group = _unwrap(Optimizer.add_param_group)
    zero_grad = _unwrap(Optimizer.zero_grad)
    state_dict = _unwrap(Optimizer.state_dict)
    load_state_dict = _unwrap(Optimizer.load_state_dict)


class UncompiledSGD(Uncompiled, SGD):
    step = _unwrap_step(SGD.step)


class UncompiledAdam(Uncompiled, Adam):
    step = _unwrap_step(Adam.step)


class UncompiledAdamW(Uncompiled, AdamW):
    step = _unwrap_step(AdamW.step)


class UncompiledAdagrad(Uncompiled, Adagrad):
    step = _unwrap_step(Adagrad.step)
