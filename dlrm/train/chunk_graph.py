"""The pass of a chunk as one launch: recorded once as a CUDA graph, then replayed.

A GPU is done with the operations of a small chunk sooner than the host has launched them. A graph is one launch; it
always reads and writes the same memory, so that rows are copied there first, and it has a fixed number of rows. Graphs
are recorded for the numbers of rows that occur, rounded up to a few for each power of two, without squares of gradients
and with them. A chunk of another number is filled up with rows of zeros, whose weight is 0.
"""

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import nn

from dlrm.gradient_stats.estimator import Estimator
from dlrm.train.batch import DeviceBatch
from dlrm.train.dense_pass import ChunkRows, EagerChunk
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.embedding import PooledBatch

SIZES_OF_AN_OCTAVE, SIZES_OF_A_CHUNK = 8, 32
"""Numbers of rows for which there may be graphs: at most eight from one power of two to the next, and 32 in all. So the
first half of a batch, whose length changes, needs no graph of its own each time."""
COMPARED_FRACTION = 8
"""Part of a chunk on whose rows graphs are compared with single operations: an eighth."""
TOLERANCE = {False: 0.05, True: 0.25}
"""Largest difference between the results of a graph and of single operations, as a fraction of the latter's L2 norm, by
whether matrix products are in bf16. Both round, in other orders if a product has more rows or the compiler fuses
operations: a few ReLUs near zero open or shut, 0.003 of the gradient in TF32, and in bf16 the gradients of a small
DCN-v2 are off by up to 0.12 either way. A graph that reads or leaves out the wrong memory is off by all."""

log = logging.getLogger(__name__)


class Recorder(Protocol):
    """Recorder of operations on a device."""

    def warm_up(self, function: Callable[[], None]) -> None:
        """Run a function as it must run once before it is recorded."""
        ...

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record the operations of a function, and return what runs them."""
        ...

    def forget(self) -> None:
        """Begin anew, with memory of its own: what was recorded will be dropped, and is not running now."""
        ...


class CudaRecorder:
    """Recorder of CUDA graphs, which share their memory: no two run at once, and none leaves anything in it."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._failed: list[torch.cuda.CUDAGraph] = []
        """Graphs that could not be recorded: torch's allocator may still refer to them."""
        self.forget()

    def warm_up(self, function: Callable[[], None]) -> None:
        # What libraries set up at their first call must not be recorded, and belongs to a stream.
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            function()
        current.wait_stream(self._stream)

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            # Other threads may query events meanwhile, as NCCL's do.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                function()
        except BaseException:
            # torch leaves these as they are where CUDA itself gives a recording up.
            torch.cuda.set_stream(current)
            self._failed.append(graph)
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(current.device_index, self._pool)
            raise
        return graph.replay

    def forget(self) -> None:
        torch.cuda.synchronize()
        # The memory of a pool is freed with its last graph; the pool itself cannot be used again.
        self._pool = torch.cuda.graph_pool_handle()


@dataclass(frozen=True)
class ChunkShape:
    """Shape of a chunk."""

    num_rows: int
    """c, the most rows of a chunk."""
    num_dense: int
    num_features: int
    dim: int
    num_tasks: int = 1


@dataclass(frozen=True)
class _Variant:
    """Key of a graph: the passes that it serves."""

    num_rows: int
    is_adding_squares: bool


class GraphedChunk:
    """The pass of a chunk as one launch. Each graph is compared with the eager pass at its first chunk.

    If it differs by more than rounding, or cannot be recorded, chunks run eagerly from there on.
    """

    def __init__(
        self,
        eager: EagerChunk,
        estimator: Estimator,
        gradients: GradientBuffer,
        shape: ChunkShape,
        recorder: Recorder,
        *,
        is_compiled: bool,
        tell_fallback: Callable[[str], None],
        is_unrecorded: Callable[[], bool] = lambda: False,
    ) -> None:
        """Allocate what graphs read and write.

        eager: the same pass without graphs. gradients: of its model. is_compiled: have torch.compile make the kernels;
        if it cannot, graphs have the eager ones. tell_fallback: called with the reason if compiled graphs, or graphs,
        are not possible. is_unrecorded: whether the pass of this batch does more than graphs have recorded.
        """
        self._is_unrecorded = is_unrecorded
        self._eager, self._estimator, self._gradients, self._recorder = eager, estimator, gradients, recorder
        self._tell_fallback = tell_fallback
        model = eager.model
        self._candidates: list[tuple[str, nn.Module | Callable[..., torch.Tensor]]] = [("CUDA graphs", model)]
        if is_compiled:
            self._candidates.insert(0, ("compiled CUDA graphs", compile_for_all_sizes(model)))
        self._replays: dict[_Variant, Callable[[], None]] = {}
        self._least_quantum = max(1, shape.num_rows // SIZES_OF_A_CHUNK)
        self._num_compared_rows = max(1, shape.num_rows // COMPARED_FRACTION)
        device, num_rows = gradients.gradient.device, self._round_up(shape.num_rows)
        self._rows = ChunkRows(
            torch.zeros(num_rows, shape.num_dense, device=device),
            torch.zeros(num_rows, shape.num_features, shape.dim, device=device),
            torch.zeros(num_rows, *([shape.num_tasks] if shape.num_tasks > 1 else []), device=device),
            torch.zeros(num_rows, device=device),
        )
        self._to_scaled_mean = torch.ones((), device=device)
        self._last_factor = 1.0
        self._loss = torch.zeros((), device=device)
        self._gradient = torch.empty(0, device=device)
        """[c, F, D] gradient of the pooled embeddings times `to_scaled_mean`, in the dtype that they are taken in."""

    def __call__(
        self, batch: DeviceBatch, pooled: PooledBatch, start: int, end: int, to_scaled_mean: float
    ) -> torch.Tensor:
        if not self._candidates or self._is_unrecorded():
            return self._eager(batch, pooled, start, end, to_scaled_mean)
        variant = _Variant(self._round_up(end - start), self._estimator.is_adding_squares)
        self._set_factor(pooled, to_scaled_mean)
        replay = self._replays.get(variant)
        if replay is None:
            few = min(end, start + self._num_compared_rows)
            self._fill(batch, pooled, start, few, variant.num_rows)
            replay = self._prepare(variant, few - start)
        if replay is None:
            return self._eager(batch, pooled, start, end, to_scaled_mean)
        with self._eager.clock.part("lookup"):
            self._fill(batch, pooled, start, end, variant.num_rows)
        with self._eager.clock.part("dense"):
            replay()
        with self._eager.clock.part("give_back"):
            return self._loss + pooled.write_gradient(start, end, self._gradient[: end - start])

    def _fill(self, batch: DeviceBatch, pooled: PooledBatch, start: int, end: int, num_rows: int) -> None:
        """Copy samples [start, end) to where graphs read them, followed by zeros up to `num_rows`."""
        rows, count = self._rows, end - start
        pooled.read_chunk(start, end, out=rows.pooled[:count])
        kept = [rows.dense[:count], rows.labels[:count], rows.weights[:count]]
        sources = [batch.dense[start:end], batch.labels[start:end], batch.weights[start:end]]
        torch._foreach_copy_(kept, sources)  # pyright: ignore[reportPrivateImportUsage], torch's only name for it
        if count < num_rows:
            # NaN of an earlier chunk would stay NaN under a weight of 0.
            for tensor in (rows.dense, rows.pooled, rows.labels, rows.weights):
                tensor[count:num_rows].zero_()

    def _set_factor(self, pooled: PooledBatch, to_scaled_mean: float) -> None:
        if to_scaled_mean != self._last_factor:
            self._to_scaled_mean.fill_(to_scaled_mean)
            self._last_factor = to_scaled_mean
        if not len(self._gradient):
            self._gradient = torch.empty_like(self._rows.pooled, dtype=pooled.gradient_dtype)

    def _prepare(self, variant: _Variant, num_compared: int) -> Callable[[], None] | None:
        """Record the graph of a variant; None if this chunk must run eagerly. The gradient buffer stays as it is.

        The graph is compared with single operations on `num_compared` rows, which the kept memory holds, followed by
        zeros: single operations on a whole chunk might find no room beside the graphs.
        """
        if all(recorded.num_rows < variant.num_rows for recorded in self._replays):
            # Smaller graphs find room in the memory of a larger one, and not the other way round.
            self._forget()
        few = replace(variant, num_rows=num_compared)
        before = self._gradients.sums.clone()
        # What was added to large sums could not be told apart from their rounding.
        self._gradients.sums.zero_()
        try:
            self._recorder.warm_up(self._make_pass(few, self._eager.model))
            expected = self._take_results(num_compared)
            is_finite = all(bool(result.isfinite().all()) for result in expected.values())
            if not is_finite or not expected["dense gradient"].any():
                # Nothing to compare with: the step will be dropped, or these rows do not count. A later one tries.
                return None
            while self._candidates:
                name, forward = self._candidates[0]
                try:
                    replay = self._record(variant, few, forward)
                except Exception as error:
                    log.exception("the dense part cannot be recorded")
                    obstacle = f"cannot be recorded ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
                else:
                    # What the graph does not write must not pass for what single operations have left there.
                    self._loss.fill_(math.nan)
                    self._gradient[:num_compared].fill_(math.nan)
                    self._gradients.sums.zero_()
                    replay()
                    obstacle = self._compare(self._take_results(num_compared), expected)
                    if obstacle is None:
                        log.info("the pass of %d samples is launched as one of %s", variant.num_rows, name)
                        self._replays[variant] = replay
                        return replay
                    del replay
                self._give_up(f"{name} {obstacle}")
        finally:
            self._gradients.sums.copy_(before)
        return None

    def _record(self, variant: _Variant, few: _Variant, forward: Callable[..., torch.Tensor]) -> Callable[[], None]:
        """Record the graph of a variant. few: the same with few rows."""
        if forward is not self._eager.model:
            # The compiler works at the first call.
            self._recorder.warm_up(self._make_pass(few, forward))
        return self._recorder.record(self._make_pass(variant, forward))

    def _compare(self, results: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> str | None:
        """Compare the results of a graph and of single operations; return how they differ by more than rounding."""
        tolerance = TOLERANCE[self._eager.is_bf16]
        for name, found in results.items():
            norm = torch.linalg.vector_norm(expected[name]).item()
            difference = torch.linalg.vector_norm(found - expected[name]).item()
            if not difference <= tolerance * norm:
                return f"are wrong: their {name} is off by {difference:.2g}, its norm is {norm:.2g}"
        return None

    def _take_results(self, num_rows: int) -> dict[str, torch.Tensor]:
        """Copy what a pass has left for the first rows, where the gradient buffer was zero before it."""
        sums = self._gradients.sums.clone().view(-1, len(self._gradients.gradient))
        return {
            "loss": self._loss.clone(),
            "gradient of pooled embeddings": self._gradient[:num_rows].to(torch.float32, copy=True),
            "dense gradient": sums[0],
            "sum of squares": sums[1:],
        }

    def _give_up(self, reason: str) -> None:
        """Go on with the next candidate, or eagerly if there is none."""
        del self._candidates[0]
        self._forget()
        if not self._candidates:
            # Single operations have memory of their own.
            del self._rows, self._gradient
        then = self._candidates[0][0] if self._candidates else "single operations"
        self._tell_fallback(f"the dense part is launched as {then}: {reason}")

    def _forget(self) -> None:
        """Drop all graphs and their memory; those that are needed again will be recorded again."""
        self._recorder.forget()
        self._replays.clear()

    def _make_pass(self, variant: _Variant, forward: Callable[..., torch.Tensor]) -> Callable[[], None]:
        """Return the pass over the first rows of the kept memory."""
        rows, num_rows = self._rows, variant.num_rows

        def run() -> None:
            pooled = rows.pooled[:num_rows].detach().requires_grad_()
            of_variant = ChunkRows(rows.dense[:num_rows], pooled, rows.labels[:num_rows], rows.weights[:num_rows])
            self._loss.copy_(of_variant.train(forward, self._eager.loss, is_bf16=self._eager.is_bf16))
            if pooled.grad is not None:  # there are tables
                torch.mul(pooled.grad, self._to_scaled_mean, out=self._gradient[:num_rows])

        return run

    def _round_up(self, num_rows: int) -> int:
        """Return the least number of rows, `num_rows` (at least 1) or more, for which there may be a graph."""
        quantum = max(self._least_quantum, (1 << (num_rows.bit_length() - 1)) // SIZES_OF_AN_OCTAVE)
        return math.ceil(num_rows / quantum) * quantum


def compile_for_all_sizes(model: nn.Module) -> Callable[..., torch.Tensor]:
    """Return the model as torch.compile makes it, once for all numbers of rows."""
    # Imported late: only compiled graphs need it.
    from torch.fx.experimental import _config

    compiled = torch.compile(model, dynamic=True)

    def forward(dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        # Else torch takes sizes that are equal in the first call for the same one: as many rows as a layer is wide
        # would have it compiled again for any other number, in the middle of a recording.
        with _config.patch(use_duck_shape=False):  # pyright: ignore[reportAttributeAccessIssue]
            return compiled(dense, pooled)

    return forward
