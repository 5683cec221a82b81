"""How often a training step reads results of the device, for which the host waits."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dlrm.optimizers import StepRates
from dlrm.train.batch import to_device
from sharding.comm.process_groups import Ranks
from tests.distributed.reference import GlobalBatch, draw_batches
from tests.distributed.training import TrainingSetting
from tests.rank_pool.pool import RankPools

READ_BY_HOST = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "_to_copy"}
"""Operators whose results, or the shapes of them, the host has to know; of copies those to a CPU."""


class HostReads(TorchDispatchMode):
    """Counts reads by name. Methods that reach a CPU tensor's memory without an operator are counted, too."""

    METHODS = ("tolist", "numpy", "cpu")

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in READ_BY_HOST and (name != "_to_copy" or (kwargs or {}).get("device") == torch.device("cpu")):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))

    def patch(self, context: pytest.MonkeyPatch) -> None:
        for method in self.METHODS:
            context.setattr(torch.Tensor, method, self._make_counted(method, getattr(torch.Tensor, method)))

    def make_uncounted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def uncounted(*arguments: Any) -> Any:
            before = self.counts.copy()
            result = function(*arguments)
            self.counts = before
            return result

        return uncounted

    def _make_counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            self.counts[name] += 1
            return method(tensor, *arguments, **options)

        return counted


def count_reads(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]) -> list[Counter[str]]:
    """Count the reads of each step from its input dist on, but those in the lookup.

    There FBGEMM reads its count of steps, which is a tensor on the host.
    """
    parts = setting.build_parts(ranks)
    counts: list[Counter[str]] = []
    for batch in batches:
        share = to_device(setting.cut_share(batch, ranks), ranks.device)
        handle = parts.step.start_input_dist(share)
        handle.wait()
        with pytest.MonkeyPatch.context() as context, HostReads() as reads:
            reads.patch(context)
            context.setattr(parts.tables, "lookup", reads.make_uncounted(parts.tables.lookup))
            parts.step(share, StepRates(dense=0.1, table=0.1), handle=handle)
        counts.append(reads.counts)
    return counts


@pytest.mark.parametrize("world_size", [1, 2])
def test_the_host_reads_from_the_device_once_a_step(rank_pools: RankPools, world_size: int):
    setting = TrainingSetting(256, 32, "rowwise_adagrad", transport="torchrec")
    batches = draw_batches(3, 256, [rows for _, rows in setting.table_rows])
    for counts in rank_pools.of(world_size).run(count_reads, setting, batches):
        assert counts == [Counter(tolist=1)] * len(batches)
