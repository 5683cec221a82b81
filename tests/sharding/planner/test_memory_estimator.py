"""The bytes that a plan counts besides weights and optimizer state are those that a batch keeps."""

import gc
from dataclasses import replace
from typing import get_args
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from sharding.embedding import ShardedTables, TableAverage, TableOptimizer, native_ops
from sharding.embedding.slices import Slices
from sharding.jagged import JaggedIds
from sharding.planner import Plan, PlanRequest, ShardingType, Table, Transport, memory_estimator, slice_size
from sharding.planner.check import find_faults
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.report import make_plan_report
from sharding.planner.types import Device, ExchangeType
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import make_uniform_plan
from tests.sharding.planner.plain_plans import make_plain_topology
from tests.sharding.tensor_memory import PeakMemory

GLOBAL_SIZE, CHUNK_SIZE, DIM, NUM_IDS = 4096, 256, 32, 2
TABLES = [Table(f"t{number}", 500 + number, DIM, NUM_IDS) for number in range(4)]
SLICE_BYTES = 2**16
"""Bytes of a slice: few, so that a share has several slices."""


def draw_ids(seed: int, num_samples: int) -> JaggedIds[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 500, (len(TABLES) * num_samples * NUM_IDS,), generator=generator)
    return JaggedIds(ids, torch.full((len(TABLES), num_samples), NUM_IDS, dtype=torch.int32))


def measure_peak(ranks: Ranks, plan: Plan, exchange_dtype: ExchangeType, transport: Transport) -> int:
    """Return the peak bytes of tensors while a batch trains, with those of the batches before and after it."""
    share = GLOBAL_SIZE // ranks.world_size
    with mock.patch.object(slice_size, "SLICE_BYTES", SLICE_BYTES):
        tables = ShardedTables(
            plan,
            TableOptimizer("rowwise_adagrad", 1.0, 1),
            ranks,
            exchange_dtype=exchange_dtype,
            seed=0,
            chunk_size=CHUNK_SIZE,
            transport=transport,
        )
        tables._chunk_buffer.view(CHUNK_SIZE)
        gradient = torch.ones(CHUNK_SIZE, len(TABLES), DIM)
        peak = PeakMemory()
        with (
            mock.patch.object(native_ops, "apply_update", peak.measure_before(native_ops.apply_update)),
            mock.patch.object(dist, "all_reduce", peak.measure_before(dist.all_reduce)),
            mock.patch.object(dist, "all_to_all_single", peak.measure_before(dist.all_to_all_single)),
        ):
            next_handle = tables.start_input_dist(draw_ids(0, share))
            for seed in (1, 2):
                handle, next_handle = next_handle, tables.start_input_dist(draw_ids(seed, share))
                # The temporary tensors of an input dist are not measured: another thread has them.
                next_handle.wait()
                pooled = tables.lookup(handle, GLOBAL_SIZE, 0.1)
                for start in range(0, share, CHUNK_SIZE):
                    pooled.read_chunk(start, start + CHUNK_SIZE)
                    peak.measure()
                    pooled.write_gradient(start, start + CHUNK_SIZE, gradient)
                    peak.measure()
                # As in a step: no rank updates from gradients that others have yet to write.
                all_reduce_votes(ranks, DEFAULT_VOTE)
                pooled.apply_update(0.1)
                peak.wait_for_release()
            next_handle.wait()
    gc.unfreeze()
    return peak.num_bytes - count_foreign_bytes(tables, ranks)


def count_foreign_bytes(tables: ShardedTables, ranks: Ranks) -> int:
    """Count the batch buffers of the other ranks in shared memory: each rank counts its own."""
    buffers = getattr(tables._transports[0], "_batch_buffers", [])
    foreign = [buffer for rank, buffer in enumerate(buffers) if rank != ranks.rank]
    return sum(buffer.offsets.nbytes + buffer.gradients.nbytes + buffer.view_ids().nbytes for buffer in foreign)


def plan_buffers(plan: Plan, exchange_dtype: ExchangeType, transport: Transport, device: Device) -> list[int]:
    """Return the buffer bytes of each rank that a plan counts, without the memory for sorting ids."""
    request = PlanRequest(
        tuple(TABLES),
        make_plain_topology(1, plan.world_size, device=device),
        GLOBAL_SIZE,
        CHUNK_SIZE,
        exchange_dtype=exchange_dtype,
        transport=transport,
    )
    sorted_bytes = memory_estimator.SORTED_BYTES
    with (
        mock.patch.object(slice_size, "SLICE_BYTES", SLICE_BYTES),
        mock.patch.dict(sorted_bytes, dict.fromkeys(sorted_bytes, 0)),
    ):
        return [sum(rank.buffer_bytes.values()) for rank in make_plan_report(request, plan).ranks]


@pytest.mark.parametrize(
    ("transport", "sharding_type", "exchange_dtype", "device"),
    [
        ("memory", "row_wise", "fp32", "cpu"),
        ("memory", "table_wise", "fp16", "cpu"),
        ("network", "table_wise", "fp32", "cpu"),
        ("network", "row_wise", "fp16", "cpu"),
        ("network", "table_wise", "bf16", "cpu"),
        ("network", "data_parallel", "fp32", "cpu"),
        ("torchrec", "table_wise", "fp32", "cuda"),
        ("torchrec", "table_wise", "fp16", "cuda"),
        ("torchrec", "row_wise", "fp32", "cpu"),
    ],
)
def test_a_plan_counts_the_bytes_that_a_batch_keeps(
    rank_pools: RankPools,
    transport: Transport,
    sharding_type: ShardingType,
    exchange_dtype: ExchangeType,
    device: Device,
):
    """Plans for GPUs are compared with TorchRec on the CPU, which keeps the same tensors."""
    plan = make_uniform_plan(TABLES, sharding_type, 2)
    measured = rank_pools.of(2).run(measure_peak, plan, exchange_dtype, transport)
    planned = plan_buffers(plan, exchange_dtype, transport, device)
    for num_measured, num_planned in zip(measured, planned, strict=True):
        assert 0.75 * num_planned < num_measured <= 1.02 * num_planned, (measured, planned)


def count_average_bytes(ranks: Ranks, plan: Plan, transport: Transport) -> int:
    """Return the bytes that the average of the tables keeps on this rank."""
    tables = ShardedTables(
        plan,
        TableOptimizer("rowwise_adagrad", 1.0, 1),
        ranks,
        exchange_dtype="fp32",
        seed=0,
        chunk_size=CHUNK_SIZE,
        transport=transport,
    )
    return sum(tensor.nbytes for tensor in TableAverage(tables, ranks)._averages)


@pytest.mark.parametrize("transport", ["memory", "network"])
@pytest.mark.parametrize("sharding_type", ["table_wise", "row_wise", "data_parallel"])
def test_a_plan_counts_the_average_of_the_weights(
    rank_pools: RankPools, sharding_type: ShardingType, transport: Transport
):
    plan = make_uniform_plan(TABLES, sharding_type, 2)
    request = PlanRequest(
        tuple(TABLES), make_plain_topology(1, 2), GLOBAL_SIZE, CHUNK_SIZE, transport=transport, is_averaged=True
    )
    averaged, plain = (make_plan_report(each, plan).ranks for each in (request, replace(request, is_averaged=False)))
    planned = [one.total_bytes - other.total_bytes for one, other in zip(averaged, plain, strict=True)]
    assert rank_pools.of(2).run(count_average_bytes, plan, transport) == planned
    assert not find_faults(replace(request, topology=replace(request.topology, memory_bytes=10**9)), plan)


@given(
    share=st.integers(1, 5000),
    chunk_size=st.integers(1, 5000),
    columns=st.integers(1, 10_000),
    exchange_dtype=st.sampled_from(get_args(ExchangeType)),
)
def test_slices_are_counted_as_they_are_cut(share: int, chunk_size: int, columns: int, exchange_dtype: ExchangeType):
    request = PlanRequest((), make_plain_topology(1, 1), share, chunk_size, exchange_dtype=exchange_dtype)
    cut = Slices.cut(share, columns * request.exchange_bytes, chunk_size)
    in_flight = sum(end - start for start, end in list(cut)[: slice_size.SLICES_IN_FLIGHT])
    assert MemoryEstimator(request, columns)._in_flight == in_flight
