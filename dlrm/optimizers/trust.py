"""Trust ratios: what LARS and LAMB scale the rate of each tensor by. Groups without `is_trust_scaled` have ratio 1."""

import torch

from dlrm.gradient_stats.parts import expand_parts


def compute_norms(weights: list[torch.Tensor], others: list[torch.Tensor]) -> torch.Tensor:
    """Compute the L2 norms [2, n] of n weights and n other tensors, all of one dtype, without waiting for a device."""
    return torch.stack(torch._foreach_norm([*weights, *others])).view(2, len(weights))


def select_ratios(norms: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """Return `ratio` [n] for n tensors, 1 where one of the tensor's two norms [2, n] is not above 0."""
    return ratio.masked_fill((norms > 0).all(dim=0).logical_not_(), 1.0)


def scale_each(tensors: list[torch.Tensor], ratios: torch.Tensor) -> None:
    """Multiply each of n tensors by its ratio, in place. ratios: [n]."""
    if ratios.device.type == "cpu":
        torch._foreach_mul_(tensors, ratios.unbind())
    else:
        # A device would be given one kernel for each tensor and scalar.
        scale_by_factors(tensors, ratios)


def scale_by_factors(tensors: list[torch.Tensor], ratios: torch.Tensor) -> None:
    """Do what `scale_each` does, in two calls for all tensors: a factor for each element takes a pass of its own."""
    sizes = [tensor.numel() for tensor in tensors]
    factors = expand_parts(ratios, sizes).split(sizes)
    shaped = [factor.view(tensor.shape) for factor, tensor in zip(factors, tensors, strict=True)]
    torch._foreach_mul_(tensors, shaped)
