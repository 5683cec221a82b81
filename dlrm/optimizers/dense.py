"""The optimizer of the dense parameters: one of torch's own, or one that torch does not have."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Parameter
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from dlrm.config import DenseOptimizerConfig
from dlrm.config.optimizers import SETTINGS
from dlrm.optimizers.adafactor import Adafactor
from dlrm.optimizers.groups import make_parameter_groups
from dlrm.optimizers.groupwise import AveragingOptimizer, GroupwiseOptimizer
from dlrm.optimizers.lamb import Lamb
from dlrm.optimizers.lars import Lars
from dlrm.optimizers.nadamw import NAdamW
from dlrm.optimizers.schedule_free import ScheduleFree
from dlrm.optimizers.soap import Soap
from dlrm.optimizers.state import keep_in_bf16, number_as_in_model
from dlrm.optimizers.uncompiled import UncompiledAdagrad, UncompiledAdam, UncompiledAdamW, UncompiledSGD

_KINDS: dict[str, type[Any]] = {
    "sgd": UncompiledSGD,
    "momentum": UncompiledSGD,
    "adam": UncompiledAdam,
    "adamw": UncompiledAdamW,
    "nadamw": NAdamW,
    "adagrad": UncompiledAdagrad,
    "lars": Lars,
    "lamb": Lamb,
    "soap": Soap,
    "adafactor": Adafactor,
    "schedule_free": ScheduleFree,
}
"""Classes of the optimizers, whose arguments are named as the settings."""


def make_dense_optimizer(config: DenseOptimizerConfig, named_parameters: Iterable[tuple[str, Parameter]]) -> Optimizer:
    """Create the optimizer that `config` names. Call `set_learning_rate` before each step to set the rate of the
    schedule.

    Its `state_dict` numbers parameters in the order of `named_parameters`, whatever the groups. Raises DataError if
    `config.groups` does not fit the names.
    """
    named = list(named_parameters)
    optimizer = _make(config, make_parameter_groups(config, named))
    number_as_in_model(optimizer, [parameter for _, parameter in named])
    if config.momentum_dtype == "bf16":
        keep_in_bf16(optimizer, "exp_avg" if config.is_adaptive else "momentum_buffer")
    if config.max_gradient_norm is not None:
        _clip_gradients(optimizer, config.max_gradient_norm)
    set_learning_rate(optimizer, config.learning_rate)
    return optimizer


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the rate of every group for the next step: `rate` times the group's own factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_factor"]


def set_batch_fraction(optimizer: Optimizer, fraction: float) -> None:
    """Set which fraction of a full batch the next step's gradient comes from, where the optimizer must know it.

    A gradient is divided by the rows of a full batch, so that the gradient of a short batch is smaller; only LARS would
    undo that.
    """
    if isinstance(optimizer, Lars):
        optimizer.batch_fraction = fraction


def set_average_weight(optimizer: Optimizer, weight: float) -> None:
    """Set the factor by which the next step counts in an average of the weights, where the optimizer keeps one."""
    if isinstance(optimizer, AveragingOptimizer):
        optimizer.average_weight = weight


def _make(config: DenseOptimizerConfig, groups: list[dict[str, Any]]) -> Optimizer:
    # Groups have their own weight decay, and `keep_in_bf16` has the format of the momentum.
    names = SETTINGS[config.name].keys() - {"learning_rate", "weight_decay", "momentum_dtype"}
    settings = {name: getattr(config, name) for name in names}
    if config.nesterov:
        settings["nesterov"] = True
    if "beta2" in settings:
        settings["betas"] = settings.pop("beta1"), settings.pop("beta2")
    make = _KINDS[config.name]
    if not issubclass(make, GroupwiseOptimizer):
        settings |= _choose_kernels(make, groups[0]["params"][0].device)
    return make(groups, lr=config.learning_rate, **settings)


def _clip_gradients(optimizer: Optimizer, max_norm: float) -> None:
    """Have steps use gradients whose L2 norm over all parameters is at most `max_norm`."""

    def clip(optimizer: Optimizer, *_: object) -> None:
        clip_grad_norm_([parameter for group in optimizer.param_groups for parameter in group["params"]], max_norm)

    optimizer.register_step_pre_hook(clip)


def _choose_kernels(make: type[Optimizer], device: torch.device) -> dict[str, bool]:
    """Choose between torch's implementations of its optimizers: on CUDA one kernel makes a step, but for Adagrad.

    Its state is the same as in the others, except for the count of steps, which it keeps on the device. torch moves the
    count to where it belongs when state is loaded.
    """
    is_fused = device.type == "cuda" and make is not UncompiledAdagrad
    return {"fused" if is_fused else "foreach": True}
