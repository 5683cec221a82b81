"""Moments over single samples, without a backward pass for each."""

import math
from collections.abc import Iterator

import torch
from torch import nn

from dlrm.config import MomentsConfig
from dlrm.model.linear import Linear
from dlrm.model.products import has_own_products, weight_gradient
from dlrm.moments.estimator import Estimator, Positions
from dlrm.moments.moments import Moments
from dlrm.moments.positions import bounds, chunks_of, num_in
from dlrm.moments.squares import squared_gradient
from sharding.dense import FlatSums

LEAST_RUN = 2048
"""Samples measured in a row: fewer would cut chunks short, which are slower then, more would leave some ranks without
any. A constant, since neither the chunk nor W may change what is measured."""


class ExactMoments(Estimator):
    """Sums the squared gradients of the samples of every `nn.Linear` that is used once a sample.

    A sample's gradient of a weight is d x^T, with the layer's input x and the gradient d of its output, so that the sum
    of its square over samples is (d^2)^T (x^2): one more matrix product (Goodfellow 2015, arXiv 1510.01799, whose norms
    are the sums of these elements). Under bf16 autocast the squares are bf16, their sums fp32.

    Where a share of the batch is measured, these are the first samples of equal parts of it, whose gradient is summed
    apart. Which they are depends on neither W nor the chunk.
    """

    def __init__(
        self,
        config: MomentsConfig,
        model: nn.Module,
        sums: FlatSums,
        chunk_size: int,
        global_size: int,
        every: int,
        *,
        is_bf16: bool,
    ) -> None:
        """model: its parameters are those of `sums`. every: steps from one measurement to the next.

        Raises ValueError for a parameter that no linear layer has.
        """
        super().__init__(sums, chunk_size)
        self._is_bf16 = is_bf16
        self._is_watching = False
        self._every = every
        self._global_size = global_size
        self._runs_of_a_batch = _measured_runs(config, global_size)
        self._runs = self._runs_of_a_batch
        """Of the batch that is measured now."""
        self._sum_of_measured = sums.extra[1] if config.has_runs else torch.empty(0)
        """[P] Where only some samples are measured."""
        self._put_aside = torch.empty_like(self._sum_of_measured)
        names = [name for name, _ in model.named_parameters()]
        self._squares = dict(zip(names, sums.shaped(sums.extra[0]), strict=True))
        covered: set[str] = set()
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear):
                covered |= {f"{name}.weight", f"{name}.bias"}
                self._watch(name, layer)
        missing = [name for name in names if name not in covered]
        if missing:
            raise ValueError(f"no estimator of exact moments for {missing[0]}: it is no parameter of an nn.Linear")

    def chunks(self, share: Positions, index: int, *, is_whole: bool) -> Iterator[tuple[int, int]]:
        self.is_measuring = index % self._every == 0
        if not self.is_measuring:
            yield from self._chunks(share)
            return
        self._runs = [(0, self._global_size)] if is_whole else self._runs_of_a_batch
        if self._runs == [(0, self._global_size)]:
            self._is_watching = True
            yield from self._chunks(share)
            self._is_watching = False
            return
        yield from self._chunks_of_runs(share)

    def _chunks_of_runs(self, share: Positions) -> Iterator[tuple[int, int]]:
        """Those measured and those between them; what was summed before a measured one is put aside meanwhile."""
        gradient, is_any_aside = self._sums.gradient, False
        for first, behind, is_measured in _split(self._runs, share):
            self._is_watching = is_measured
            if is_measured and first > 0:
                if is_any_aside:
                    self._put_aside += gradient
                else:
                    self._put_aside.copy_(gradient)
                is_any_aside = True
                gradient.zero_()
            yield from chunks_of(first, behind, self._chunk_size)
            if is_measured:
                self._sum_of_measured += gradient
        self._is_watching = False
        if is_any_aside:
            gradient += self._put_aside

    def moments(self, num_valid: int, mean_weight: float) -> Moments | None:
        num_measured = sum(num_in(first, behind, num_valid) for first, behind in self._runs)
        if not self.is_measuring or num_measured < 2:
            return None
        mean = self._sums.gradient
        # In place: the next batch begins with zeros anyway.
        mean_square = self._sums.extra[0].div_(num_measured * mean_weight**2)
        is_whole = num_measured == num_valid
        measured_mean = mean if is_whole else self._sum_of_measured.div_(num_measured * mean_weight)
        return Moments(mean, mean_square, measured_mean, num_valid, num_measured, num_measured)

    def _watch(self, name: str, layer: nn.Linear) -> None:
        weight_squares = self._squares[f"{name}.weight"]
        bias_squares = self._squares.get(f"{name}.bias")
        is_activated = isinstance(layer, Linear) and layer.is_activated

        def watch(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            if self._is_watching:
                (x,) = inputs
                if x.dim() != 2:
                    raise ValueError(f"{name} has inputs {list(x.shape)}, and exact moments need one a sample")
                x, y = x.detach(), output.detach() if is_activated else None
                output.register_hook(lambda d: self._add(x, d, y, weight_squares, bias_squares))

        layer.register_forward_hook(watch)

    @torch.no_grad()
    def _add(
        self,
        x: torch.Tensor,
        d: torch.Tensor,
        y: torch.Tensor | None,
        weight_squares: torch.Tensor,
        bias_squares: torch.Tensor | None,
    ) -> None:
        """x [c, inputs], d and y [c, outputs]"""
        dtype = torch.bfloat16 if self._is_bf16 else weight_squares.dtype
        x_squared, d_squared = x.to(dtype).square(), squared_gradient(d, y, bias_squares, dtype)
        if has_own_products(x.device, dtype):
            weight_squares += weight_gradient(d_squared, x_squared)
        else:
            weight_squares += d_squared.T @ x_squared


def _measured_runs(config: MomentsConfig, global_size: int) -> list[tuple[int, int]]:
    """The first samples of equal parts of the global batch: spread over it, so that all ranks have some."""
    if config.fraction == 1.0:
        return [(0, global_size)]
    num_measured = max(2, math.ceil(config.fraction * global_size))
    num_parts = max(1, num_measured // LEAST_RUN)
    starts = [bounds(number, num_parts, global_size)[0] for number in range(num_parts)]
    lengths = [behind - first for first, behind in (bounds(n, num_parts, num_measured) for n in range(num_parts))]
    return [(start, min(start + length, global_size)) for start, length in zip(starts, lengths, strict=True)]


def _split(runs: list[tuple[int, int]], share: Positions) -> Iterator[tuple[int, int, bool]]:
    """The share in those runs and between them, in order, as positions in it; and whether they are measured."""
    behind_last = share.start
    for first, behind in [(max(first, share.start), min(behind, share.end)) for first, behind in runs]:
        if first >= behind:
            continue
        if behind_last < first:
            yield behind_last - share.start, first - share.start, False
        yield first - share.start, behind - share.start, True
        behind_last = behind
    if behind_last < share.end:
        yield behind_last - share.start, share.end - share.start, False
