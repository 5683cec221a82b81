"""Least time that a training step can take: bytes and FLOPs of the configuration, divided by the machine's rates.

Counts what every implementation of the step must do, not what ours does, and assumes perfect caches and that all cores
are busy. A share of the roofline is the least time divided by the measured time.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.nn import functional as F

from benchmarks.cells import Cell
from benchmarks.devices import synchronize
from benchmarks.training import CPU, NUM_DENSE

COPY_BYTES = 2**28
"""Bytes of a timed copy: far more than caches hold."""
ROWS, WIDTH = {"cpu": 8192, "cuda": 2**18}, 512
"""Sizes of the timed matrix products [ROWS, WIDTH] x [WIDTH, WIDTH]: samples of a chunk, by device, and width of the
default MLPs."""
NUM_TRIES = 5


@dataclass(frozen=True)
class Rates:
    """Measured rates of all cores together, or of a GPU, the best of several tries."""

    copy_bytes_per_second: float
    """Bytes per second of a copy; bytes read and bytes written both count."""
    fp32_flops: float
    bf16_flops: float
    """FLOPs per second of matrix products in bf16: the best of torch's functions and a direct call of oneDNN."""


def measure_rates(num_threads: int, device: torch.device = CPU) -> Rates:
    torch.set_num_threads(num_threads)
    source, target = (torch.ones(COPY_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
    copy = _time_fastest(lambda: target.copy_(source), 1, device)
    return Rates(2 * COPY_BYTES / copy, _measure_flops(torch.float32, device), _measure_flops(torch.bfloat16, device))


def compute_least_seconds(cell: Cell, rates: Rates) -> dict[str, float]:
    """Compute the least seconds of one step of all ranks together, by part of our step.

    The parts run one after the other; a part that is missing needs no time.
    """
    num_bytes, flops = count_least_bytes(cell), count_dense_flops(cell)
    is_bf16 = cell.shape.precision == "bf16"
    seconds = {part: count / rates.copy_bytes_per_second for part, count in num_bytes.items()}
    products = flops / (rates.bf16_flops if is_bf16 else rates.fp32_flops)
    return {**seconds, "dense": max(seconds["dense"], products)}


def count_least_bytes(cell: Cell) -> dict[str, float]:
    """Count the bytes moved between memory and cores in one step of all ranks together, by part.

    A row that several samples look up is read once. Pooled embeddings stay in the caches, chunk by chunk. Their
    gradient is written, since nothing may be updated before all of it is known to be finite, and read by the update.
    """
    num_bags = cell.batch_size * cell.num_tables
    num_distinct = cell.num_tables * expect_distinct_rows(cell)
    ids = 8 * num_bags * cell.ids_per_bag + 4 * num_bags
    gradient = (2 if cell.shape.exchange_dtype == "fp16" else 4) * num_bags * cell.embedding_dim
    row = 4 * cell.embedding_dim
    return {
        "lookup": ids + num_distinct * row,
        "dense": 4 * cell.batch_size * (NUM_DENSE + 1),
        "give_back": gradient,
        # Each row and its Adagrad sum, one fp32 number, are read and written.
        "table_update": ids + gradient + num_distinct * 2 * (row + 4),
        # On every rank Adam reads gradient, weight and two moments, and writes all but the gradient.
        "optimizer": 7 * 4 * count_dense_parameters(cell) * cell.world_size,
    }


def count_dense_flops(cell: Cell) -> float:
    """Count the FLOPs of one global batch in the dense part, forward and backward.

    The gradient of the dense features is not needed, so it is not counted.
    """
    bottom, top = _get_widths(cell)
    products = sum(m * n for widths in (bottom, top) for m, n in pairwise(widths))
    pairs = cell.embedding_dim * _count_pairs(cell)
    return cell.batch_size * 2 * (3 * (products + pairs) - bottom[0] * bottom[1])


def count_dense_parameters(cell: Cell) -> int:
    return sum((m + 1) * n for widths in _get_widths(cell) for m, n in pairwise(widths))


def expect_distinct_rows(cell: Cell) -> float:
    """Compute the expected number of distinct rows of one table among the ids of a global batch."""
    num_ids, num_rows = cell.batch_size * cell.ids_per_bag, cell.rows_per_table
    k = torch.arange(1, num_rows + 1, dtype=torch.float64)
    if cell.ids == "uniform":
        chances = torch.full_like(k, 1 / num_rows)
    else:
        chances = torch.log1p(1 / k) / torch.log(torch.tensor(num_rows + 1.0, dtype=torch.float64))
    return float(-torch.expm1(num_ids * torch.log1p(-chances)).sum())


def _get_widths(cell: Cell) -> tuple[list[int], list[int]]:
    model = cell.shape.job.job.model
    return [NUM_DENSE, *model.bottom_mlp], [cell.embedding_dim + _count_pairs(cell), *model.top_mlp]


def _count_pairs(cell: Cell) -> int:
    """Count the dot products of all pairs among the pooled embeddings and the output of the bottom MLP."""
    return (cell.num_tables + 1) * cell.num_tables // 2


def _measure_flops(dtype: torch.dtype, device: torch.device) -> float:
    num_rows = ROWS[device.type]
    inputs, weight = (torch.rand(rows, WIDTH, device=device).to(dtype) for rows in (num_rows, WIDTH))
    bias, transposed = torch.rand(WIDTH, device=device).to(dtype), weight.t().contiguous()
    products: list[Callable[[], torch.Tensor]] = [
        lambda: torch.mm(inputs, transposed),
        lambda: F.linear(inputs, weight, bias),
    ]
    if device.type == "cpu" and torch.backends.mkldnn.is_available():
        onednn: Callable[[], torch.Tensor] = lambda: torch.ops.mkldnn._linear_pointwise(  # noqa: E731
            inputs, weight, bias, "none", [], ""
        )
        try:
            onednn()
            products.append(onednn)
        except RuntimeError as error:
            # Such as bf16 on a processor without its instructions.
            reason = str(error).partition("\n")[0]
            sys.stderr.write(f"without the products of oneDNN in {dtype}, which it refuses here: {reason}\n")
    return 2 * num_rows * WIDTH**2 / min(_time_fastest(product, 3, device) for product in products)


def _time_fastest(work: Callable[[], torch.Tensor], num_times: int, device: torch.device) -> float:
    """Measure the seconds of one call, as the mean of `num_times` calls in a row; return the least of several tries."""
    work()
    tries: list[float] = []
    for _ in range(NUM_TRIES):
        synchronize(device)
        started = time.perf_counter()
        for _ in range(num_times):
            work()
        synchronize(device)
        tries.append((time.perf_counter() - started) / num_times)
    return min(tries)
