"""What counts as an operation that the host starts."""

from unittest import mock

import torch

from benchmarks import operations
from benchmarks.operations import OperationCounter
from dlrm.train.profiler import PartClock


class Replayed:
    """Work that a GPU would do in one launch."""

    def run(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers.exp().sin().cos()


def test_operators_count_once_by_part_and_views_and_allocations_do_not():
    clock, counter, numbers = PartClock(), OperationCounter(), torch.ones(4, 6)
    with mock.patch.object(operations, "ONE_LAUNCH", [(Replayed, "run")]), counter.counting():
        with clock.part("dense"):
            torch.empty(3)
            (numbers.view(6, 4).t()[1:] + 1).sum().item()
            torch._foreach_add_([numbers, numbers[0]], 1.0)
        with clock.part("optimizer"):
            Replayed().run(numbers)
        numbers.mul_(2)
    assert counter.operations == {"dense": 3, "optimizer": 1, "rest": 1}
    assert counter.reads == {"dense": 1}
