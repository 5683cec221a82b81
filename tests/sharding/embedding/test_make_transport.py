"""Which transport a run's tables get."""

from collections.abc import Callable
from unittest import mock

import pytest

from sharding.comm.process_groups import Ranks
from sharding.embedding import ShardedTables, TableOptimizer, TransportError, native_ops
from sharding.embedding.make_transport import TransportChoice
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import make_uniform_plan
from tests.sharding.embedding.table_batches import TABLES


def find_transport(
    ranks: Ranks, choice: TransportChoice, *, is_rank1_elsewhere: bool = False, is_built_on_rank1: bool = True
) -> str:
    """Return the names of the transport and of its lookup, or the error where there is none.

    is_rank1_elsewhere: whether rank 1 has another host name. is_built_on_rank1: whether it has the native operators.
    """
    host = "elsewhere" if is_rank1_elsewhere and ranks.rank == 1 else "here"
    is_built = mock.patch.object(native_ops, "is_built", return_value=is_built_on_rank1 or ranks.rank == 0)
    with mock.patch("socket.gethostname", return_value=host), is_built:
        try:
            tables = ShardedTables(
                make_uniform_plan(TABLES, "table_wise", ranks.world_size),
                TableOptimizer("sgd", 1.0),
                ranks,
                exchange_dtype="fp32",
                seed=0,
                chunk_size=4,
                transport=choice,
            )
        except TransportError as error:
            return str(error)
    (transport,) = tables._transports
    lookup = getattr(transport, "_lookup", None)
    return type(transport).__name__ + (f" {type(lookup).__name__}" if lookup else "")


def find_on_two_hosts(ranks: Ranks, choice: TransportChoice) -> str:
    return find_transport(ranks, choice, is_rank1_elsewhere=True)


def find_without_operators_on_rank1(ranks: Ranks, choice: TransportChoice) -> str:
    return find_transport(ranks, choice, is_built_on_rank1=False)


def test_ranks_of_one_machine_share_memory_unless_the_network_is_asked_for(rank_pools: RankPools):
    assert rank_pools.of(2).run(find_transport, "auto") == ["MemoryTransport"] * 2
    assert rank_pools.of(2).run(find_transport, "memory") == ["MemoryTransport"] * 2
    assert rank_pools.of(2).run(find_transport, "network") == ["NetworkTransport NativeLookup"] * 2


def test_ranks_of_two_machines_exchange(rank_pools: RankPools):
    assert rank_pools.of(2).run(find_on_two_hosts, "auto") == ["NetworkTransport NativeLookup"] * 2


def test_where_some_rank_has_no_native_operators_all_use_those_of_fbgemm(rank_pools: RankPools):
    assert rank_pools.of(2).run(find_without_operators_on_rank1, "auto") == ["NetworkTransport FbgemmLookup"] * 2


@pytest.mark.parametrize(
    ("find", "why"),
    [
        (find_on_two_hosts, "needs all ranks on one machine"),
        (find_without_operators_on_rank1, "needs the native operators"),
    ],
)
def test_memory_that_cannot_be_shared_is_refused_on_all_ranks_saying_why(
    rank_pools: RankPools, find: Callable[[Ranks, TransportChoice], str], why: str
):
    for message in rank_pools.of(2).run(find, "memory"):
        assert why in message
