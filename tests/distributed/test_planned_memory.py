"""A plan for a GPU counts the tensors that a step keeps in plain torch, on one rank with TorchRec's tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.operations import without_cpu_operators
from benchmarks.training import RATES, Shape, run_on_ranks
from dlrm.config.sharding import TopologyConfig
from dlrm.train.build import plan_tables
from sharding.comm.process_groups import Ranks
from sharding.planner import memory_estimator

pytestmark = pytest.mark.slow

SHAPE = Shape(2048, 1, 26, 100, 64, "dlrm", "fp32", "fp32", "uniform", transport="torchrec", chunk_size=2048)
SHAPES = [
    SHAPE,
    replace(SHAPE, precision="bf16"),
    replace(SHAPE, chunk_size=512),
    replace(SHAPE, precision="bf16", chunk_size=512),
    replace(SHAPE, architecture="dcn_v2"),
]


class PeakOfNewTensors(TorchDispatchMode):
    """The most bytes that storages had at once which operators of this block have made."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        old = {
            tensor.untyped_storage()._cdata
            for tensor in tree_leaves((args, kwargs))
            if isinstance(tensor, torch.Tensor)
        }
        self._alive = {key: kept for key, kept in self._alive.items() if not kept[0].expired()}
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in old:
                storage = tensor.untyped_storage()
                self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.num_bytes = max(self.num_bytes, sum(size for _, size in self._alive.values()))
        return result


def measure_all(ranks: Ranks, path: Path) -> None:
    peaks: list[int] = []
    with without_cpu_operators():
        for shape in SHAPES:
            step, batches, peak = shape.build_parts(ranks).step, shape.draw_batches(), PeakOfNewTensors()
            batch, after = next(batches), next(batches)
            with peak:
                handle, _ahead = step.start_input_dist(batch), step.start_input_dist(after)
                step(batch, RATES, handle=handle)
            peaks.append(peak.num_bytes)
    torch.save(peaks, path)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    path = tmp_path_factory.mktemp("peaks") / "peaks.pt"
    run_on_ranks(1, "cpu", measure_all, path)
    return torch.load(path)


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_a_plan_counts_the_tensors_of_a_step(number: int, measured: list[int]):
    """Ids that FBGEMM sorts are left out: on a CPU it does that without torch's memory."""
    shape = replace(SHAPES[number], device="cuda")
    sharding = shape.job.job.sharding.model_copy(update={"topology": TopologyConfig(gpu_memory="80GB")})
    resources = shape.job.job.resources.model_copy(update={"cuda_graphs": "off"})
    job = shape.job.job.model_copy(update={"sharding": sharding, "resources": resources})
    resolved = shape.job.model_copy(update={"job": job})
    with mock.patch.dict(memory_estimator.SORTED_BYTES, dict.fromkeys(memory_estimator.SORTED_BYTES, 0)):
        (rank,) = plan_tables(resolved, shape.schema).report.ranks
    kept = {"program", "samples", "ids", "dense part"}
    planned = sum(size for use, size in rank.buffer_bytes.items() if use not in kept)
    assert measured[number] == pytest.approx(planned, rel=0.08)
