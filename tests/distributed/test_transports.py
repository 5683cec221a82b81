"""Which way between ranks and tables is taken."""

from typing import Any
from unittest import mock

import pytest

from dlrm.data.errors import DataError
from sharding.comm.process_groups import Ranks
from sharding.embedding import ShardedTables, TableOptimizer, TransportError
from sharding.embedding import native_ops as native
from tests.distributed.plans import plan_of
from tests.distributed.rank_pool import RankPools
from tests.distributed.table_batches import TABLES
from tests.distributed.training import Setting


def way_taken(ranks: Ranks, asked: Any, *, is_apart: bool = False, is_built: bool = True) -> str:
    """Return the names of the transport and of its lookup, or why there is none. is_apart: rank 1 has another host."""
    host = "elsewhere" if is_apart and ranks.rank == 1 else "here"
    built = mock.patch.object(native, "is_built", return_value=is_built or ranks.rank == 0)
    with mock.patch("socket.gethostname", return_value=host), built:
        try:
            tables = ShardedTables(
                plan_of(TABLES, "table_wise", ranks.world_size),
                TableOptimizer("sgd", 1.0),
                ranks,
                exchange_dtype="fp32",
                seed=0,
                chunk_size=4,
                transport=asked,
            )
        except TransportError as error:
            return str(error)
    (transport,) = tables._transports
    lookup = getattr(transport, "_lookup", None)
    return type(transport).__name__ + (f" {type(lookup).__name__}" if lookup else "")


def test_ranks_of_one_machine_share_memory_unless_the_network_is_asked_for(rank_pools: RankPools):
    assert rank_pools.of(2).run(way_taken, "auto") == ["MemoryTransport"] * 2
    assert rank_pools.of(2).run(way_taken, "memory") == ["MemoryTransport"] * 2
    assert rank_pools.of(2).run(way_taken, "network") == ["NetworkTransport NativeLookup"] * 2


def apart(ranks: Ranks, asked: str) -> str:
    return way_taken(ranks, asked, is_apart=True)


def not_built_everywhere(ranks: Ranks, asked: str) -> str:
    return way_taken(ranks, asked, is_built=False)


def test_ranks_of_two_machines_exchange(rank_pools: RankPools):
    assert rank_pools.of(2).run(apart, "auto") == ["NetworkTransport NativeLookup"] * 2


def test_where_some_rank_has_no_own_operators_all_use_those_of_fbgemm(rank_pools: RankPools):
    assert rank_pools.of(2).run(not_built_everywhere, "auto") == ["NetworkTransport FbgemmLookup"] * 2


@pytest.mark.parametrize(
    ("run", "why"), [(apart, "needs all ranks on one machine"), (not_built_everywhere, "needs the own operators")]
)
def test_memory_that_cannot_be_shared_is_refused_on_all_ranks_saying_why(rank_pools: RankPools, run: Any, why: str):
    for message in rank_pools.of(2).run(run, "memory"):
        assert why in message


def refused_job(ranks: Ranks) -> str:
    with mock.patch("socket.gethostname", return_value=f"host{ranks.rank}"):
        try:
            Setting(global_size=8, chunk_size=4, transport="memory").build(ranks)
        except DataError as error:
            return str(error)
    return "nothing"


def test_a_job_that_asks_for_memory_in_vain_is_told_the_field_and_what_would_be_valid(rank_pools: RankPools):
    for message in rank_pools.of(2).run(refused_job):
        assert "sharding.transport" in message
        assert '"auto", "network"' in message
