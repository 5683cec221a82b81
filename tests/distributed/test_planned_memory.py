"""The bytes that a plan counts beside weights and optimizer's state are those that a batch keeps."""

import gc
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Literal
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config import MomentsConfig, VarianceReductionConfig
from dlrm.optimizers import StepRates
from dlrm.planning.dense_size import dense_size, parameter_bytes
from dlrm.train.batch import to_device
from sharding.comm.gradient_buffer import SharedMemoryAllReduce
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from sharding.embedding import ShardedTables, TableOptimizer
from sharding.embedding import native_ops as native
from sharding.embedding.slices import Slices
from sharding.jagged import JaggedIds
from sharding.planner import Plan, PlanRequest, ShardingType, Table, slice_size
from sharding.planner import memory_estimator as planned
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.report import make_plan_report
from tests.distributed.plans import plan_of
from tests.distributed.rank_pool import RankPools
from tests.distributed.reference import GlobalBatch, random_batches
from tests.distributed.training import Setting
from tests.sharding.planner.plain import plain_topology

GLOBAL_SIZE, CHUNK_SIZE, DIM, NUM_IDS = 4096, 256, 32, 2
TABLES = [Table(f"t{number}", 500 + number, DIM, NUM_IDS) for number in range(4)]
SLICE_BYTES = 2**16
"""Small, so that there are several slices."""


def live_tensors() -> list[torch.Tensor]:
    """Every tensor of this process that is not frozen."""
    with warnings.catch_warnings(action="ignore"):
        return [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]


def tensor_bytes(tensors: list[torch.Tensor]) -> dict[int, int]:
    """Of each memory once."""
    return {of.untyped_storage().data_ptr(): of.untyped_storage().nbytes() for of in tensors}


class Watch:
    """The most that new tensors took, whenever it was looked at."""

    def __init__(self) -> None:
        gc.collect()
        # Held, so that no new tensor comes to the place of an old one.
        self._held = live_tensors()
        self._before = tensor_bytes(self._held)
        # What is there need not be looked through again.
        gc.freeze()
        self._given: list[weakref.ref[torch.Tensor]] = []
        self.most = 0

    def look(self) -> None:
        now = tensor_bytes(live_tensors())
        self.most = max(self.most, sum(size for place, size in now.items() if place not in self._before))

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self.look()
            self._given += [weakref.ref(given) for given in arguments if isinstance(given, torch.Tensor)]
            return function(*arguments, **named)

        return watched

    def wait_for_others(self) -> None:
        """Until the threads of gloo have let go of what was summed, which they do some time after they are done."""
        deadline = time.monotonic() + 10
        while any(given() is not None for given in self._given) and time.monotonic() < deadline:
            time.sleep(0.001)
        self._given.clear()


def bags(seed: int, num_samples: int) -> JaggedIds[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 500, (len(TABLES) * num_samples * NUM_IDS,), generator=generator)
    return JaggedIds(ids, torch.full((len(TABLES), num_samples), NUM_IDS, dtype=torch.int32))


def most_kept(ranks: Ranks, plan: Plan, exchange_dtype: Literal["fp32", "fp16"], transport: Any, is_built: bool) -> int:
    """Bytes of a training batch, the one before it and the one ahead."""
    share = GLOBAL_SIZE // ranks.world_size
    # Where they are there, they have to be loaded.
    built = mock.patch.object(native, "is_built", return_value=native.is_built() and is_built)
    with built, mock.patch.object(slice_size, "SLICE_BYTES", SLICE_BYTES):
        tables = ShardedTables(
            plan,
            TableOptimizer("rowwise_adagrad", 1.0),
            ranks,
            exchange_dtype=exchange_dtype,
            seed=0,
            chunk_size=CHUNK_SIZE,
            transport=transport,
        )
        tables._chunk_buffer.view(CHUNK_SIZE)
        gradient = torch.ones(CHUNK_SIZE, len(TABLES), DIM)
        watch = Watch()
        with (
            mock.patch.object(native, "apply_update", watch.before(native.apply_update)),
            mock.patch.object(dist, "all_reduce", watch.before(dist.all_reduce)),
        ):
            ahead = tables.start_input_dist(bags(0, share))
            for seed in (1, 2):
                sent, ahead = ahead, tables.start_input_dist(bags(seed, share))
                # What it takes on its way is not looked at: that is another thread's.
                ahead.wait()
                pooled = tables.lookup(sent, GLOBAL_SIZE, 0.1)
                for start in range(0, share, CHUNK_SIZE):
                    pooled.read_chunk(start, start + CHUNK_SIZE)
                    watch.look()
                    pooled.write_gradient(start, start + CHUNK_SIZE, gradient)
                    watch.look()
                # As a step does it: nobody updates from what others have yet to write.
                all_reduce_votes(ranks, DEFAULT_VOTE)
                pooled.apply_update(0.1)
                watch.wait_for_others()
            ahead.wait()
    gc.unfreeze()
    return watch.most - bytes_of_others(tables, ranks)


def bytes_of_others(tables: ShardedTables, ranks: Ranks) -> int:
    """Count the batch buffers of the other ranks in shared memory: each rank counts its own."""
    buffers = getattr(tables._transports[0], "_batch_buffers", [])
    others = [buffer for rank, buffer in enumerate(buffers) if rank != ranks.rank]
    return sum(buffer.offsets.nbytes + buffer.gradients.nbytes + buffer.ids().nbytes for buffer in others)


def planned_buffers(plan: Plan, exchange_dtype: Literal["fp32", "fp16"], transport: Any, device: Any) -> list[int]:
    """Of each rank, without what sorts."""
    request = PlanRequest(
        tuple(TABLES),
        plain_topology(1, plan.world_size, device=device),
        GLOBAL_SIZE,
        CHUNK_SIZE,
        exchange_dtype=exchange_dtype,
        transport=transport,
    )
    with (
        mock.patch.object(slice_size, "SLICE_BYTES", SLICE_BYTES),
        mock.patch.dict(planned.SORTED_BYTES, dict.fromkeys(planned.SORTED_BYTES, 0)),
    ):
        return [sum(rank.buffer_bytes.values()) for rank in make_plan_report(request, plan).ranks]


@pytest.mark.parametrize(
    ("transport", "sharding_type", "exchange_dtype", "device"),
    [
        ("memory", "row_wise", "fp32", "cpu"),
        ("memory", "table_wise", "fp16", "cpu"),
        ("network", "table_wise", "fp32", "cpu"),
        ("network", "row_wise", "fp16", "cpu"),
        ("network", "data_parallel", "fp32", "cpu"),
        ("network", "table_wise", "fp32", "cuda"),
        ("network", "table_wise", "fp16", "cuda"),
    ],
)
def test_what_a_plan_counts_is_what_a_batch_keeps(
    rank_pools: RankPools, transport: str, sharding_type: ShardingType, exchange_dtype: Any, device: str
):
    """As on GPUs: by FBGEMM, which is counted as it keeps its numbers there; here it runs on the CPU."""
    plan = plan_of(TABLES, sharding_type, 2)
    kept = rank_pools.of(2).run(most_kept, plan, exchange_dtype, transport, device == "cpu")
    counted = planned_buffers(plan, exchange_dtype, transport, device)
    for of_rank, of_plan in zip(kept, counted, strict=True):
        assert 0.75 * of_plan < of_rank <= 1.02 * of_plan, (kept, counted)


def bytes_of_dense_part(ranks: Ranks, setting: Setting, batches: list[GlobalBatch]) -> int:
    """That stay after some steps: parameters, sums, and what optimizer, moments and variance reduction keep."""
    # Plans count what moments keep of data with several shuffle windows.
    parts = setting.build(ranks, num_windows=2)
    for batch in batches:
        share = to_device(setting.share(batch, ranks), ranks.device)
        parts.step(share, StepRates(dense=0.1, table=0.1))
    kept: list[torch.Tensor] = [parameter.detach() for parameter in parts.model.parameters()]
    kept += [tensor for of_one in parts.optimizer.state.values() for tensor in of_one.values()]
    for keeper in (parts.step.gradients, parts.step.dense_pass.estimator):
        kept += [tensor for tensor in vars(keeper).values() if isinstance(tensor, torch.Tensor)]
    kept += parts.reduction.state_dict().values() if parts.reduction else []
    if isinstance(parts.step.gradients._all_reducer, SharedMemoryAllReduce):
        kept.append(parts.step.gradients._all_reducer._summed_parts[ranks.rank])
    # Beside them are counters.
    return sum(tensor_bytes([tensor for tensor in kept if tensor.dim() > 0]).values())


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(
    ("moments", "is_reduced"),
    [
        (None, False),
        (MomentsConfig(every=1), False),
        (MomentsConfig(every=1), True),
        (MomentsConfig(every=1, fraction=1.0), True),
        (MomentsConfig(every=1, estimator="groups", num_groups=2), True),
    ],
)
def test_what_a_plan_counts_for_the_dense_part_is_what_a_run_keeps(
    rank_pools: RankPools, moments: MomentsConfig | None, is_reduced: bool, optimizer: str, world_size: int
):
    reduction = VarianceReductionConfig() if is_reduced else None
    setting = Setting(256, 64, moments=moments, variance_reduction=reduction, dense_optimizer=optimizer)
    batches = random_batches(2, 256, [rows for _, rows in setting.table_rows])
    kept: list[int] = rank_pools.of(world_size).run(bytes_of_dense_part, setting, batches)
    size = dense_size(setting.model, setting.num_dense, len(setting.table_rows))
    # Parts of ranks are rounded to whole lines of the cache.
    job = setting.resolved(world_size).job
    assert kept == [pytest.approx(parameter_bytes(job, size, is_in_memory=True), abs=64)] * world_size


@given(
    share=st.integers(1, 5000),
    chunk_size=st.integers(1, 5000),
    columns=st.integers(1, 10_000),
    exchange_dtype=st.sampled_from(["fp32", "fp16"]),
)
def test_slices_are_counted_as_they_are_cut(share: int, chunk_size: int, columns: int, exchange_dtype: Any):
    request = PlanRequest((), plain_topology(1, 1), share, chunk_size, exchange_dtype=exchange_dtype)
    cut = Slices.of(share, columns * request.exchange_bytes, chunk_size)
    in_flight = sum(end - start for start, end in list(cut)[: slice_size.SLICES_IN_FLIGHT])
    assert MemoryEstimator(request, columns)._in_flight == in_flight
