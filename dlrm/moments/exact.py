"""Moments over single samples, without a backward pass for each."""

import math
from collections.abc import Iterator

import torch
from torch import nn

from dlrm.config import MomentsConfig
from dlrm.moments.estimator import Estimator, Share
from dlrm.moments.moments import Moments
from dlrm.moments.positions import bounds, num_in
from sharding.dense import FlatSums


class ExactMoments(Estimator):
    """Sums the squared gradients of the samples of every `nn.Linear` that is used once a sample.

    A sample's gradient of a weight is d x^T, with the layer's input x and the gradient d of its output, so that the sum
    of its square over samples is (d^2)^T (x^2): one more matrix product (Goodfellow 2015, arXiv 1510.01799, whose norms
    are the sums of these elements). Under bf16 autocast the squares are bf16, their sums fp32.
    """

    def __init__(
        self,
        config: MomentsConfig,
        model: nn.Module,
        sums: FlatSums,
        chunk_size: int,
        global_size: int,
        *,
        is_bf16: bool,
    ) -> None:
        """model: its parameters are those of `sums`. Raises ValueError for one that no linear layer has."""
        super().__init__(sums, chunk_size)
        self._config = config
        self._global_size = global_size
        self._is_bf16 = is_bf16
        self._measured: list[tuple[int, int]] = []
        """Runs of this chunk's samples that are measured."""
        names = [name for name, _ in model.named_parameters()]
        self._squares = dict(zip(names, sums.shaped(sums.squares), strict=True))
        covered: set[str] = set()
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear):
                covered |= {f"{name}.{own}" for own, _ in layer.named_parameters()}
                self._watch(name, layer)
        missing = [name for name in names if name not in covered]
        if missing:
            raise ValueError(f"no estimator of exact moments for {missing[0]}: it is no parameter of an nn.Linear")

    def chunks(self, share: Share, index: int) -> Iterator[tuple[int, int]]:
        self.is_measuring = index % self._config.every == 0
        for start, end in self._chunks(share):
            self._measured = self._measured_in(share.start + start, share.start + end) if self.is_measuring else []
            yield start, end
        self._measured = []

    def moments(self, num_valid: int, mean_weight: float) -> Moments | None:
        if not self.is_measuring or num_valid < 2:
            return None
        parts = [self._measured_part(number) for number in range(self._config.num_groups)]
        num_measured = sum(num_in(first, behind, num_valid) for first, behind in parts)
        mean_square = self._sums.squares / (num_measured * mean_weight**2)
        return Moments(self._sums.gradient, mean_square, num_valid, num_valid)

    def _measured_part(self, number: int) -> tuple[int, int]:
        """The first samples of each part of the global batch: which they are depends on neither W nor the chunk."""
        first, behind = bounds(number, self._config.num_groups, self._global_size)
        return first, first + math.ceil((behind - first) * self._config.fraction)

    def _measured_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Runs of measured samples among the positions [start, end), counted from `start`; runs that touch are one."""
        runs: list[tuple[int, int]] = []
        for number in range(self._config.num_groups):
            first, behind = self._measured_part(number)
            first, behind = max(first, start) - start, min(behind, end) - start
            if first >= behind:
                continue
            if runs and runs[-1][1] == first:
                first = runs.pop()[0]
            runs.append((first, behind))
        return runs

    def _watch(self, name: str, layer: nn.Linear) -> None:
        weight_squares = self._squares[f"{name}.weight"]
        bias_squares = self._squares.get(f"{name}.bias")

        def watch(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            if self._measured:
                (x,) = inputs
                if x.dim() != 2:
                    raise ValueError(f"{name} has inputs {list(x.shape)}, and exact moments need one a sample")
                x, measured = x.detach(), self._measured
                output.register_hook(lambda d: self._add(x, d, measured, weight_squares, bias_squares))

        layer.register_forward_hook(watch)

    @torch.no_grad()
    def _add(
        self,
        x: torch.Tensor,
        d: torch.Tensor,
        measured: list[tuple[int, int]],
        weight_squares: torch.Tensor,
        bias_squares: torch.Tensor | None,
    ) -> None:
        """x [c, inputs], d [c, outputs]"""
        dtype = torch.bfloat16 if self._is_bf16 else weight_squares.dtype
        x_squared, d_squared = (_rows(tensor, measured).to(dtype).square() for tensor in (x, d))
        if self._is_bf16:
            weight_squares += d_squared.T @ x_squared
        else:
            weight_squares.addmm_(d_squared.T, x_squared)
        if bias_squares is not None:
            bias_squares += d_squared.sum(dim=0, dtype=bias_squares.dtype)


def _rows(tensor: torch.Tensor, runs: list[tuple[int, int]]) -> torch.Tensor:
    if len(runs) == 1:
        return tensor[runs[0][0] : runs[0][1]]
    return torch.cat([tensor[first:behind] for first, behind in runs])
