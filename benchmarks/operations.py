"""Operations that the host starts in a training step, by part: `python -m benchmarks.operations`.

Counts them on a CPU, without the native operators of CPUs, so that the step is a GPU's: one rank, TorchRec's tables,
plain torch. Each operator that reaches a backend counts once, a `_foreach` over many tensors too, and so does the pass
of a chunk (a CUDA graph there); views and allocations do not count. On a GPU an operator is one launch or a few, so
that a step takes no less than their number times some microseconds, however small its batch. Numbers that the host
reads have a column of their own: it waits for numbers on a GPU, while torch's Adam keeps the numbers of its steps, one
for each parameter, on the host.

  python -m benchmarks.operations --cases off:adam default:lamb --batch 32768 --chunk 8192
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

from torch.utils._python_dispatch import TorchDispatchMode

import dlrm.native
from benchmarks.training import RATES, REDUCTIONS, Shape, add_shape_options, run_on_ranks
from dlrm.config.optimizers import SETTINGS
from dlrm.model.mlp import has_onednn_products
from dlrm.train.profiler import PartClock
from sharding.comm.process_groups import Ranks

CASES = ["off:adam", "default:adam", "exact:adam", "groups:adam", "off:lamb", "default:lamb", "off:lars", "off:soap"]
NUM_WARM = 3
READS = {"_local_scalar_dense"}
FREE = {
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_"),
    *("_unsafe_view", "is_pinned", "record_stream", "is_nonzero"),
}
"""Operators that start nothing on a GPU, beside views."""


class OperationCounter(TorchDispatchMode):
    """Counts operators, and numbers that the host reads, by part of a step."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self._part = "rest"
        self._is_in_one_launch = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.rpartition("::")[2]
        if name in READS:
            self.reads[self._part] += 1
        elif not (self._is_in_one_launch or name in FREE or _is_view(func)):
            self.operations[self._part] += 1
        return func(*args, **(kwargs or {}))

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what the block starts as part `name`."""
        before, self._part = self._part, name
        yield
        self._part = before

    def call_as_one(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function, and count all that it starts as one operation."""
        self.operations[self._part] += 1
        self._is_in_one_launch = True
        try:
            return function(*args, **kwargs)
        finally:
            self._is_in_one_launch = False

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what the block starts, by the parts that the clock of a step names."""
        self.operations.clear()
        self.reads.clear()
        with mock.patch.object(PartClock, "part", lambda _, name: self.part(name)), self:
            yield


@dataclass(frozen=True)
class Repeater:
    """Recorder that runs a function again where a GPU would replay a graph of it, and counts it as one launch."""

    counter: OperationCounter

    def warm_up(self, function: Callable[[], None]) -> None:
        function()

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        return partial(self.counter.call_as_one, function)

    def forget(self) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shape_options(parser)
    parser.set_defaults(batch=2048, ranks=1, rows=1000, transport="torchrec")
    parser.add_argument(
        "--cases", nargs="+", default=CASES, help="kinds of variance reduction with optimizers of the dense part"
    )
    arguments = parser.parse_args()
    known = [f"{reduction}:{optimizer}" for reduction in REDUCTIONS for optimizer in SETTINGS]
    if unknown := [case for case in arguments.cases if case not in known]:
        parser.error(f"--cases: {unknown[0]} is not a kind of variance reduction with an optimizer, such as {known[0]}")
    shape = Shape.from_arguments(arguments)
    if shape.device != "cpu" or shape.world_size != 1:
        parser.error("operations are counted on one rank, on a CPU")
    shapes = [
        replace(shape, reduction=reduction, optimizer=optimizer)
        for reduction, _, optimizer in (case.partition(":") for case in arguments.cases)
    ]
    run_on_ranks(1, "cpu", _count_all, shapes)
    return 0


@contextmanager
def without_cpu_operators() -> Iterator[None]:
    """Have the dense part computed in plain torch in this block, as on a GPU."""
    dlrm.native.has_native_operators.cache_clear()
    products = sys.modules[has_onednn_products.__module__]
    with (
        mock.patch.object(dlrm.native, "load_library", return_value=False),
        mock.patch.object(products, "_HAS_ONEDNN", new=False),
    ):
        yield
    dlrm.native.has_native_operators.cache_clear()


def count_step(shape: Shape, ranks: Ranks) -> OperationCounter:
    """Count the operations of one step, after some others. Collective."""
    counter = OperationCounter()
    with without_cpu_operators():
        step, batches = shape.build_parts(ranks, Repeater(counter)).step, shape.draw_batches()
        for _ in range(NUM_WARM):
            step(next(batches), RATES)
        batch = next(batches)
        with counter.counting():
            with counter.part("input dist"):
                handle = step.start_input_dist(batch)
            step(batch, RATES, handle=handle)
    return counter


def _count_all(ranks: Ranks, shapes: list[Shape]) -> None:
    counted = {f"{shape.reduction}, {shape.optimizer}": count_step(shape, ranks) for shape in shapes}
    print(_format_table(counted), flush=True)  # noqa: T201


def _format_table(counted: Mapping[str, OperationCounter]) -> str:
    parts = list(dict.fromkeys(part for counter in counted.values() for part in counter.operations))
    head = ["variance reduction, optimizer", *parts, "all", "numbers read"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, counter in counted.items():
        numbers = [*(counter.operations[part] for part in parts), counter.operations.total(), counter.reads.total()]
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def _is_view(func: Any) -> bool:
    """Whether an operator returns a view of an argument and writes nothing."""
    return any(value.alias_info and not value.alias_info.is_write for value in func._schema.returns)


if __name__ == "__main__":
    sys.exit(main())
