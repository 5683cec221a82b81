"""The optimizer of the dense parameters: one of torch's own, or one that torch does not have."""

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from dlrm.config import DenseOptimizerConfig
from dlrm.optimizers.groups import make_parameter_groups
from dlrm.optimizers.groupwise import AveragingOptimizer
from dlrm.optimizers.lamb import Lamb
from dlrm.optimizers.lars import Lars
from dlrm.optimizers.nadamw import NAdamW
from dlrm.optimizers.schedule_free import ScheduleFree
from dlrm.optimizers.soap import Soap
from dlrm.optimizers.state import keep_in_bf16, number_as_in_model
from dlrm.optimizers.uncompiled import UncompiledAdagrad, UncompiledAdam, UncompiledAdamW, UncompiledSGD

Number = TypeVar("Number", int, float)


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
    rate, kernels = config.learning_rate, _choose_kernels(groups[0]["params"][0].device)
    match config.name:
        case "sgd":
            return UncompiledSGD(groups, lr=rate, **kernels)
        case "momentum":
            return UncompiledSGD(groups, lr=rate, momentum=_require(config.momentum), **kernels)
        case "adam":
            return UncompiledAdam(groups, lr=rate, betas=_get_betas(config), eps=_require(config.eps), **kernels)
        case "adamw":
            return UncompiledAdamW(groups, lr=rate, betas=_get_betas(config), eps=_require(config.eps), **kernels)
        case "nadamw":
            return NAdamW(groups, lr=rate, betas=_get_betas(config), eps=_require(config.eps))
        case "adagrad":
            return UncompiledAdagrad(groups, lr=rate, eps=_require(config.eps), foreach=True)
        case "lars":
            return Lars(
                groups,
                lr=rate,
                momentum=_require(config.momentum),
                trust_coefficient=_require(config.trust_coefficient),
            )
        case "lamb":
            return Lamb(groups, lr=rate, betas=_get_betas(config), eps=_require(config.eps))
        case "schedule_free":
            return ScheduleFree(groups, lr=rate, betas=_get_betas(config), eps=_require(config.eps))
        case "soap":
            return Soap(
                groups,
                lr=rate,
                betas=_get_betas(config),
                eps=_require(config.eps),
                shampoo_beta=_require(config.shampoo_beta),
                precondition_every=_require(config.precondition_every),
                max_precondition_dim=_require(config.max_precondition_dim),
            )


def _choose_kernels(device: torch.device) -> dict[str, bool]:
    """Choose between torch's implementations of its optimizers: on CUDA one kernel makes the whole step.

    Its state is the same as in the others, except for the count of steps, which it keeps on the device. torch moves the
    count to where it belongs when state is loaded.
    """
    return {"fused" if device.type == "cuda" else "foreach": True}


def _get_betas(config: DenseOptimizerConfig) -> tuple[float, float]:
    return _require(config.beta1), _require(config.beta2)


def _require(setting: Number | None) -> Number:
    assert setting is not None, "a resolved job has every setting of its optimizer"
    return setting
