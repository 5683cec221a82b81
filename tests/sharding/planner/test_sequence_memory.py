"""The bytes that a plan counts for a table that sequences read are those that a batch of full sequences keeps."""

from unittest import mock

import pytest
import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from sharding.embedding import ShardedTables, TableOptimizer, native_ops
from sharding.jagged import JaggedIds, SequenceShape
from sharding.planner import Plan, PlanRequest, Table, Transport, memory_estimator
from sharding.planner.report import make_plan_report
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import make_uniform_plan
from tests.sharding.planner.plain_plans import make_plain_topology
from tests.sharding.tensor_memory import PeakMemory

GLOBAL_SIZE, CHUNK_SIZE, DIM, LENGTH = 1024, 128, 32, 31
TABLES = [Table("film", 500, DIM, 1 + LENGTH, 1 + LENGTH), Table("site", 40, DIM)]


def draw_ids(seed: int, num_samples: int) -> JaggedIds[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([1, 1, LENGTH], dtype=torch.int32)[:, None].repeat(1, num_samples)
    return JaggedIds(torch.randint(0, 40, (int(lengths.sum()),), generator=generator), lengths)


def measure_peak(ranks: Ranks, plan: Plan, transport: Transport) -> int:
    share, optimizer = GLOBAL_SIZE // ranks.world_size, TableOptimizer("rowwise_adagrad", 1.0, 1)
    shapes = (SequenceShape(0, LENGTH),)
    tables = ShardedTables(
        plan,
        optimizer,
        ranks,
        exchange_dtype="fp32",
        seed=0,
        chunk_size=CHUNK_SIZE,
        transport=transport,
        sequences=shapes,
    )
    tables._chunk_buffer.view(CHUNK_SIZE)
    gradient = torch.ones(CHUNK_SIZE, 2 + LENGTH, DIM)
    peak = PeakMemory()
    with (
        mock.patch.object(native_ops, "apply_update", peak.measure_before(native_ops.apply_update)),
        mock.patch.object(dist, "all_to_all_single", peak.measure_before(dist.all_to_all_single)),
    ):
        next_handle = tables.start_input_dist(draw_ids(0, share))
        for seed in (1, 2):
            handle, next_handle = next_handle, tables.start_input_dist(draw_ids(seed, share))
            next_handle.wait()
            pooled = tables.lookup(handle, GLOBAL_SIZE, 0.1)
            for start in range(0, share, CHUNK_SIZE):
                pooled.read_chunk(start, start + CHUNK_SIZE)
                pooled.write_gradient(start, start + CHUNK_SIZE, gradient)
                peak.measure()
            all_reduce_votes(ranks, DEFAULT_VOTE)
            pooled.apply_update(0.1)
            peak.wait_for_release()
        next_handle.wait()
    return peak.num_bytes - count_foreign_bytes(tables, ranks)


def count_foreign_bytes(tables: ShardedTables, ranks: Ranks) -> int:
    """Count the batch buffers of the other ranks in shared memory: each rank counts its own."""
    found = [getattr(part._beneath, "_batch_buffers", None) or [] for part in tables._transports]  # pyright: ignore[reportAttributeAccessIssue]
    foreign = [buffer for buffers in found for rank, buffer in enumerate(buffers) if rank != ranks.rank]
    return sum(buffer.offsets.nbytes + buffer.gradients.nbytes + buffer.view_ids().nbytes for buffer in foreign)


@pytest.mark.parametrize("transport", ["memory", "network", "torchrec"])
def test_a_plan_counts_the_bytes_of_full_sequences(rank_pools: RankPools, transport: Transport):
    plan, topology = make_uniform_plan(TABLES, "table_wise", 2), make_plain_topology(1, 2)
    request = PlanRequest(tuple(TABLES), topology, GLOBAL_SIZE, CHUNK_SIZE, transport=transport)
    zero = dict.fromkeys(memory_estimator.SORTED_BYTES, 0)
    with mock.patch.dict(memory_estimator.SORTED_BYTES, zero):
        counted = [sum(rank.buffer_bytes.values()) for rank in make_plan_report(request, plan).ranks]
    measured: list[int] = rank_pools.of(2).run(measure_peak, plan, transport)
    for num_measured, num_counted in zip(measured, counted, strict=True):
        assert 0.75 * num_counted < num_measured <= 1.1 * num_counted, (measured, counted)
