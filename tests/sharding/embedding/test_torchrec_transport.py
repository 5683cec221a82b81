"""What TorchRec's transport does for GPUs, on CPUs: integers of 4 bytes, a narrow block, and no wait for the device."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from torchrec.distributed import dist_data

from sharding.comm.process_groups import Ranks
from sharding.embedding import torchrec_tables
from sharding.planner import Plan, ShardingType
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import TYPES, make_mixed_plan, make_uniform_plan
from tests.sharding.embedding.table_batches import GLOBAL_SIZE, TABLES, TableBatch, draw_three_batches
from tests.sharding.embedding.table_steps import TableLayout, TablesResult, look_up_and_update
from tests.sharding.embedding.test_sharded_tables import assert_follow_reference
from tests.sharding.embedding.transport_kinds import use_transport


@pytest.mark.parametrize(
    "world_size", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_ids_of_four_bytes_train_as_those_of_eight_to_the_bit(rank_pools: RankPools, world_size: int):
    """Under all sharding types at once: replicated tables are among them."""
    batches, layout = draw_three_batches(), TableLayout(make_mixed_plan(TABLES, world_size), "torchrec", "adagrad")
    short = [replace(batch, ids=[ids.int() for ids in batch.ids]) for batch in batches]
    run = rank_pools.of(world_size).run
    for of_eight, of_four in zip(
        run(look_up_and_update, layout, batches), run(look_up_and_update, layout, short), strict=True
    ):
        assert all(map(torch.equal, of_eight.pooled, of_four.pooled))
        assert all(torch.equal(weights, of_four.after[shard]) for shard, weights in of_eight.after.items())


@pytest.mark.parametrize(("num_rows", "dtype"), [(2**30, torch.int32), (2**31, torch.int64)])
def test_ids_have_four_bytes_while_these_number_all_rows(num_rows: int, dtype: torch.dtype):
    tables = [replace(table, num_rows=num_rows // len(TABLES)) for table in TABLES]
    tables[0] = replace(tables[0], num_rows=num_rows - sum(table.num_rows for table in tables[1:]))
    plan = make_uniform_plan(tables, "table_wise", 2)
    assert torchrec_tables._choose_index_type(torchrec_tables.list_torchrec_tables(plan, 1)) == dtype


def step_with_a_narrow_block(ranks: Ranks, layout: TableLayout, batches: list[TableBatch]) -> TablesResult:
    """Step with a block in the format of the exchange, as on GPUs: FBGEMM has no bf16 on CPUs, but fp16."""
    with mock.patch.object(torchrec_tables, "_choose_block_dtype", lambda dtype, _: dtype):
        return look_up_and_update(ranks, layout, batches)


@pytest.mark.parametrize(
    ("world_size", "sharding_type"),
    [
        (1, "table_wise"),
        *((2, kind) for kind in TYPES),
        *(pytest.param(4, kind, marks=pytest.mark.slow) for kind in TYPES),
    ],
)
def test_updates_from_a_block_in_the_format_of_the_exchange_follow_the_float64_reference(
    rank_pools: RankPools, world_size: int, sharding_type: ShardingType
):
    layout = TableLayout(make_uniform_plan(TABLES, sharding_type, world_size), "torchrec", "adagrad", "fp16")
    batches = draw_three_batches()
    assert_follow_reference(rank_pools.of(world_size).run(step_with_a_narrow_block, layout, batches), layout, batches)


def look_up_with_known_sizes(ranks: Ranks, plan: Plan, batch: TableBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pooled embeddings of a lookup that reads no tensor, and those of any other."""
    refuse = mock.Mock(side_effect=AssertionError("the host would wait for the device"))
    with use_transport("torchrec", ranks.world_size):
        tables = TableLayout(plan, "torchrec", pooling="mean").make_tables(ranks)
        ids = batch.share(0, 1)
        usual = tables.lookup(tables.start_input_dist(ids), GLOBAL_SIZE).read_chunk(0, GLOBAL_SIZE).clone()
        ids = replace(ids, sizes=ids.measure_sizes())
        with (
            mock.patch.object(torch.Tensor, "tolist", refuse),
            mock.patch.object(torch.Tensor, "__bool__", refuse),
            mock.patch.object(dist_data, "_get_recat", refuse),
        ):
            pooled = tables.lookup(tables.start_input_dist(ids), GLOBAL_SIZE)
        return pooled.read_chunk(0, GLOBAL_SIZE), usual


@pytest.mark.parametrize("number", [0, 1])
def test_one_rank_reads_nothing_from_the_device_that_the_host_knows(rank_pools: RankPools, number: int):
    """Neither for bags of many ids nor for those of one."""
    plan = make_uniform_plan(TABLES, "table_wise", 1)
    ((known, usual),) = rank_pools.of(1).run(look_up_with_known_sizes, plan, draw_three_batches()[number])
    assert torch.equal(known, usual)
