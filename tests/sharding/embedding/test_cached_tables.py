"""Tables that GPUs cache, on CPUs: FBGEMM has no cache there, but TorchRec gets the same plan."""

from dataclasses import replace
from unittest import mock

import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen

from sharding.comm.process_groups import Ranks
from sharding.planner import Plan
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import make_mixed_plan, make_uniform_plan
from tests.sharding.embedding.table_batches import TABLES, draw_three_batches
from tests.sharding.embedding.table_steps import TableLayout, look_up_and_update
from tests.sharding.embedding.transport_kinds import use_transport

WORLD_SIZE = 4


def cache_every_other(plan: Plan) -> Plan:
    tables = (
        planned
        if planned.is_replicated or number % 2
        else replace(planned, table=replace(planned.table, cache_share=0.25))
        for number, planned in enumerate(plan.tables)
    )
    return replace(plan, tables=tuple(tables))


def test_tables_with_and_without_a_cache_train_beside_each_other(rank_pools: RankPools):
    plan, batches = make_mixed_plan(TABLES, WORLD_SIZE), draw_three_batches()
    run = rank_pools.of(WORLD_SIZE).run
    whole = run(look_up_and_update, TableLayout(plan, "torchrec"), batches)
    cached = run(look_up_and_update, TableLayout(cache_every_other(plan), "torchrec"), batches)
    for expected, result in zip(whole, cached, strict=True):
        assert expected.after.keys() == result.after.keys()
        assert all(torch.equal(weights, result.after[shard]) for shard, weights in expected.after.items())


def record_cache_calls(ranks: Ranks) -> list[str]:
    calls: list[str] = []
    kernel = SplitTableBatchedEmbeddingBagsCodegen
    with (
        use_transport("torchrec", ranks.world_size),
        mock.patch.object(kernel, "flush", side_effect=lambda: calls.append("flush")),
        mock.patch.object(kernel, "reset_cache_states", side_effect=lambda: calls.append("reset")),
    ):
        tables = TableLayout(cache_every_other(make_uniform_plan(TABLES, "table_wise", ranks.world_size)), "torchrec")
        made = tables.make_tables(ranks)
        calls.clear()
        made.state_dict()
    return calls


def test_caches_are_written_back_and_emptied_before_tables_are_read_or_written(rank_pools: RankPools):
    """A checkpoint would else miss the newest rows, and a loaded one be hidden by old ones."""
    for calls in rank_pools.of(2).run(record_cache_calls):
        assert calls
        assert calls == ["flush", "reset"] * (len(calls) // 2)
