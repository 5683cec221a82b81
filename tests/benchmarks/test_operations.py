"""What counts as an operation that the host starts."""

import torch

from benchmarks.operations import OperationCounter, Repeater
from dlrm.train.profiler import PartClock


def test_operators_count_once_by_part_and_views_and_allocations_do_not():
    clock, counter, numbers = PartClock(), OperationCounter(), torch.ones(4, 6)
    replay = Repeater(counter).record(lambda: numbers.exp_().sin_().cos_())
    with counter.counting():
        with clock.part("dense"):
            torch.empty(3)
            (numbers.view(6, 4).t()[1:] + 1).sum().item()
            torch._foreach_add_([numbers, numbers[0]], 1.0)
        with clock.part("optimizer"):
            replay()
        numbers.mul_(2)
    assert counter.operations == {"dense": 3, "optimizer": 1, "rest": 1}
    assert counter.reads == {"dense": 1}
