"""K-FAC: the natural gradient by Kronecker factors of each linear layer's Fisher matrix, in its form for large batches.

Osawa et al. 2020 (SP-NGD, arXiv 2002.06015) train with it at batches of 32,768 to 131,072: the empirical Fisher matrix
of the same backward pass, factors that are kept as long as they hardly change, inverses dealt out over the ranks.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dlrm.config import PreconditionerConfig
from dlrm.gradient_stats.estimator import Share
from dlrm.model.factors import FactorSlots
from dlrm.model.mlp import Linear
from dlrm.model.squares import make_slot
from sharding.comm.collectives import broadcast_from_rank0, start_all_reduce
from sharding.comm.process_groups import Ranks


class Kfac:
    """Preconditioner of the weights W [n, m] and biases [n] of linear layers.

    With x [m] a sample's input of a layer and d [n] the gradient of its loss by the output before the ReLU:

        A = mean x x^T,   G = mean d d^T,   pi^2 = (trace A / m) / (trace G / n),   lambda = damping
        gradient of W  ->  (G + sqrt(lambda) / pi)^-1  gradient  (A + pi sqrt(lambda))^-1
        gradient of a bias  ->  gradient / (mean d^2 + lambda), unit by unit

    All is then multiplied by min(1, sqrt(max_divergence / (lr^2 sum of gradient x preconditioned gradient))).
    """

    def __init__(self, config: PreconditionerConfig, model: nn.Module, ranks: Ranks) -> None:
        """Find the linear layers. Raises ValueError for a parameter that no linear layer has."""
        self._config, self._ranks = config, ranks
        linear = {name: module for name, module in model.named_modules() if isinstance(module, Linear)}
        covered = {f"{name}.{kind}" for name in linear for kind in ("weight", "bias")}
        if left := [name for name, _ in model.named_parameters() if name not in covered]:
            raise ValueError(f"K-FAC does not cover {left[0]}: it is not a parameter of a linear layer")
        sizes = [side for layer in linear.values() for side in (layer.in_features, layer.out_features)]
        self._sums = torch.zeros(sum(n * n for n in sizes), device=ranks.device)
        """Sums of the factors over samples, of all layers, which ranks add up."""
        owners = _deal_out([layer.in_features**3 + layer.out_features**3 for layer in linear.values()], ranks)
        sums = self._sums.split([n * n for n in sizes])
        self._layers = {
            name: _Layer(layer, Factor(sums[2 * i]), Factor(sums[2 * i + 1]), owners[i])
            for i, (name, layer) in enumerate(linear.items())
        }
        self._num_batches = torch.zeros((), dtype=torch.int64)
        """Number of full batches so far, but for dropped ones."""
        self._due: list[_Layer] = []
        """Layers whose factors are measured in this batch."""
        self._num_measured = 0
        """Number of samples that the factors of this batch are measured on, over all ranks; 0 of a short batch."""

    @property
    def is_measuring(self) -> bool:
        return any(layer.linear.factor_slots is not None for layer in self._layers.values())

    def begin_batch(self, share: Share) -> list[tuple[int, int]]:
        self._num_measured = min(self._config.num_samples, share.num_valid) if share.is_full else 0
        self._due = [layer for layer in self._layers.values() if share.is_full and layer.is_due(int(self._num_batches))]
        if self._due:
            self._sums.zero_()
        return share.list_first(self._num_measured)

    def set_measuring(self, is_on: bool) -> None:
        """Have the layers whose factors are due add them up in their backward passes, or none."""
        for layer in self._layers.values():
            layer.linear.factor_slots = None
        if is_on:
            for layer in self._due:
                layer.linear.factor_slots = layer.slots

    @torch.no_grad()
    def precondition(self, mean_weight: float, num_copies: int, learning_rate: float) -> None:
        self.set_measuring(False)
        if self._due:
            self._update_factors(self._num_measured * num_copies, mean_weight / num_copies)
        self._num_batches += self._num_measured > 0
        pairs = [pair for layer in self._layers.values() for pair in layer.precondition(self._config.damping)]
        if not pairs:
            return
        gradients, natural = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        shortening = self._compute_shortening(gradients, natural, learning_rate)
        for gradient, other in zip(gradients, natural, strict=True):
            torch.mul(other, shortening, out=gradient)

    def state_dict(self) -> dict[str, Any]:
        return {"num_batches": self._num_batches} | {
            name: layer.inputs.state_dict("inputs") | layer.outputs.state_dict("outputs")
            for name, layer in self._layers.items()
        }

    def _update_factors(self, num_rows: int, mean_weight: float) -> None:
        """Take in the factors of this batch that are due, and invert all factors of their layers."""
        start_all_reduce(self._ranks, self._sums, "dense gradients").wait()
        number = int(self._num_batches)
        # The gradient was finite; a square of it need not be.
        if not math.isfinite(self._sums.sum()):
            return
        scale = 1.0 / num_rows
        scaled = [(layer.inputs, scale) for layer in self._due]
        scaled += [(layer.outputs, scale / mean_weight**2) for layer in self._due]
        scaled = [(factor, factor_scale) for factor, factor_scale in scaled if number >= factor.next_batch]
        intervals = [factor.choose_interval(factor_scale, self._config.max_change) for factor, factor_scale in scaled]
        # Machines may round in other ways: what the first rank decides holds for all.
        for (factor, factor_scale), interval in zip(scaled, broadcast_from_rank0(self._ranks, intervals), strict=True):
            factor.take(factor_scale, number, interval)
        for layer in self._due:
            if layer.owner == self._ranks.rank:
                layer.invert(self._config.damping)
        for layer in self._due:
            for factor in (layer.inputs, layer.outputs):
                dist.broadcast(factor.inverse, layer.owner, group=self._ranks.dense_group)

    def _compute_shortening(
        self, gradients: list[torch.Tensor], natural: list[torch.Tensor], learning_rate: float
    ) -> float:
        """Compute the factor that keeps a step within `max_divergence`.

        A step by s moves predictions by s^T F s / 2; with s = lr F^-1 g that is about lr^2 g^T F^-1 g.
        """
        limit = self._config.max_divergence
        products = [torch.sum(one.double() * other) for one, other in zip(gradients, natural, strict=True)]
        # The host waits for a GPU once, not for each layer.
        divergence = learning_rate**2 * float(torch.stack(products).sum())
        return 1.0 if limit is None or divergence <= limit else math.sqrt(limit / divergence)


class Factor:
    """A factor [n, n], its inverse, and when it is due to be computed anew.

    A new factor is near an older one if it differs by less than `max_change`. If it is near the last one, it is kept
    for as many batches as that; if near the last two, for as many as both together; if near none, for half as many as
    the last one (Osawa et al. 2020, stale statistics).
    """

    def __init__(self, sums: torch.Tensor) -> None:
        """Begin without a factor. sums: [n n] of all samples, a view."""
        side = math.isqrt(len(sums))
        self.sums = sums.view(side, side)
        self.value, self.before = torch.zeros_like(self.sums), torch.zeros_like(self.sums)
        self.inverse = torch.eye(side, dtype=sums.dtype, device=sums.device)
        self.intervals = torch.ones(2, dtype=torch.int64)
        """Numbers of batches for which the last factor and the one before are kept."""
        self.next_batch = torch.zeros((), dtype=torch.int64)
        """Number of the next batch that it is computed from."""

    def choose_interval(self, scale: float, max_change: float) -> int:
        """Choose for how many batches the sums, times `scale`, are to be kept."""
        new = self.sums * scale
        last, one_before = self.intervals.tolist()
        is_near, is_nearer = (_is_near(new, old, max_change) for old in (self.value, self.before))
        return max(1, last // 2) if not is_near else last + one_before if is_nearer else last

    def take(self, scale: float, number: int, interval: int) -> None:
        """Take in the sums of batch `number`, times `scale`, for `interval` batches."""
        self.before.copy_(self.value)
        torch.mul(self.sums, scale, out=self.value)
        self.intervals.copy_(torch.tensor([interval, int(self.intervals[0])]))
        self.next_batch.fill_(number + interval)

    @property
    def mean_eigenvalue(self) -> float:
        return float(self.value.trace()) / len(self.value)

    def invert(self, damping: float) -> None:
        """Compute (value + damping)^-1; the last inverse stays where the rounding of the sums leaves none."""
        damped = self.value.double()
        damped.diagonal().add_(damping)
        lower, info = torch.linalg.cholesky_ex(damped)
        # An error here would leave the other ranks waiting for the inverse.
        if not int(info):
            self.inverse.copy_(torch.cholesky_inverse(lower))

    def state_dict(self, name: str) -> dict[str, Any]:
        return {
            f"{name}_value": self.value,
            f"{name}_before": self.before,
            f"{name}_inverse": self.inverse,
            f"{name}_intervals": self.intervals,
            f"{name}_next_batch": self.next_batch,
        }


@dataclass(frozen=True)
class _Layer:
    linear: Linear
    inputs: Factor
    """A [m, m]"""
    outputs: Factor
    """G [n, n]"""
    owner: int
    """Rank that inverts the factors."""

    @property
    def slots(self) -> FactorSlots:
        return FactorSlots(make_slot(self.inputs.sums), make_slot(self.outputs.sums))

    def is_due(self, number: int) -> bool:
        return number >= min(int(self.inputs.next_batch), int(self.outputs.next_batch))

    def invert(self, damping: float) -> None:
        """Invert both factors, with the damping divided between them in proportion to their eigenvalues."""
        means = self.inputs.mean_eigenvalue, self.outputs.mean_eigenvalue
        # A layer without inputs or without gradients has no eigenvalues to go by.
        pi = math.sqrt(means[0] / means[1]) if min(means) > 0.0 else 1.0
        self.inputs.invert(pi * math.sqrt(damping))
        self.outputs.invert(math.sqrt(damping) / pi)

    def precondition(self, damping: float) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return each gradient of the layer, and in its place the natural one; nothing before the first factors."""
        if not int(self.inputs.next_batch):
            return []
        weight, bias = self.linear.weight.grad, None if self.linear.bias is None else self.linear.bias.grad
        assert weight is not None, "gradients are views of the gradient buffer"
        pairs = [(weight, self.outputs.inverse @ weight @ self.inputs.inverse)]
        if bias is not None:
            pairs.append((bias, bias / (self.outputs.value.diagonal() + damping)))
        return pairs


def _is_near(new: torch.Tensor, old: torch.Tensor, max_change: float) -> bool:
    return bool((new - old).norm() < max_change * old.norm())


def _deal_out(costs: list[int], ranks: Ranks) -> list[int]:
    """Give each layer to the rank that has least to do so far, the costliest first; return the rank of each."""
    loads, owners = [0] * ranks.world_size, [0] * len(costs)
    for number in sorted(range(len(costs)), key=lambda number: -costs[number]):
        owners[number] = loads.index(min(loads))
        loads[owners[number]] += costs[number]
    return owners
