"""Which transport a run's tables get."""

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
import torch

from sharding.comm.process_groups import Ranks
from sharding.embedding import ShardedTables, TableOptimizer, TransportError, native_ops
from sharding.embedding.make_transport import TransportChoice, choose_transport
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import make_uniform_plan
from tests.sharding.embedding.table_batches import TABLES


def find_transport(
    ranks: Ranks, choice: TransportChoice, *, is_rank1_elsewhere: bool = False, is_built_on_rank1: bool = True
) -> str:
    """Return the name of the transport, or the error where there is none.

    is_rank1_elsewhere: whether rank 1 has another host name. is_built_on_rank1: whether it has the native operators.
    """
    host = "elsewhere" if is_rank1_elsewhere and ranks.rank == 1 else "here"
    is_built = mock.patch.object(native_ops, "is_built", return_value=is_built_on_rank1 or ranks.rank == 0)
    with mock.patch("socket.gethostname", return_value=host), is_built:
        try:
            tables = ShardedTables(
                make_uniform_plan(TABLES, "table_wise", ranks.world_size),
                TableOptimizer("sgd", 1.0, 1),
                ranks,
                exchange_dtype="fp32",
                seed=0,
                chunk_size=4,
                transport=choice,
            )
        except TransportError as error:
            return str(error)
    (transport,) = tables._transports
    return type(transport).__name__


def find_on_two_hosts(ranks: Ranks, choice: TransportChoice) -> str:
    return find_transport(ranks, choice, is_rank1_elsewhere=True)


def find_without_operators_on_rank1(ranks: Ranks, choice: TransportChoice) -> str:
    return find_transport(ranks, choice, is_built_on_rank1=False)


def test_ranks_of_one_machine_share_memory_unless_the_network_is_asked_for(rank_pools: RankPools):
    assert rank_pools.of(2).run(find_transport, "auto") == ["MemoryTransport"] * 2
    assert rank_pools.of(2).run(find_transport, "memory") == ["MemoryTransport"] * 2
    assert rank_pools.of(2).run(find_transport, "network") == ["NetworkTransport"] * 2


def test_ranks_of_two_machines_exchange(rank_pools: RankPools):
    assert rank_pools.of(2).run(find_on_two_hosts, "auto") == ["NetworkTransport"] * 2


def test_where_some_rank_has_no_native_operators_torchrec_has_the_tables(rank_pools: RankPools):
    assert rank_pools.of(2).run(find_without_operators_on_rank1, "auto") == ["TorchRecTransport"] * 2


def test_torchrec_has_the_tables_where_it_is_asked_for(rank_pools: RankPools):
    assert rank_pools.of(2).run(find_transport, "torchrec") == ["TorchRecTransport"] * 2
    assert rank_pools.of(2).run(find_on_two_hosts, "torchrec") == ["TorchRecTransport"] * 2


def find_on_gpus(ranks: Ranks, choice: TransportChoice) -> str:
    """Return the transport that ranks on GPUs would get, or the error where there is none."""
    try:
        return choose_transport(choice, replace(ranks, device=torch.device("cuda", ranks.rank)), torch.bfloat16)
    except TransportError as error:
        return str(error)


def test_on_gpus_torchrec_has_the_tables_and_the_transports_of_cpus_are_refused(rank_pools: RankPools):
    assert rank_pools.of(2).run(find_on_gpus, "auto") == ["torchrec"] * 2
    for name in ("memory", "network"):
        assert (
            rank_pools.of(2).run(find_on_gpus, name)
            == [f'"{name}" is for ranks on CPUs, and these ranks have GPUs'] * 2
        )


def find_with_bf16(ranks: Ranks) -> str:
    """Return the error of ranks on CPUs that ask TorchRec for a bf16 exchange."""
    with pytest.raises(TransportError) as error:
        choose_transport("torchrec", ranks, torch.bfloat16)
    return str(error.value)


def test_torchrec_between_cpus_is_refused_where_it_would_send_fp16_for_bf16(rank_pools: RankPools):
    for message in rank_pools.of(2).run(find_with_bf16):
        assert message == '"torchrec" has no bf16 exchange between CPUs; sharding.exchange_dtype = "fp16" works'


def find_with_counts(ranks: Ranks, choice: TransportChoice) -> str:
    """Return the transport of an optimizer that counts the occurrences of rows, or the error where there is none."""
    try:
        return choose_transport(choice, ranks, torch.float32, needs_counts=True)
    except TransportError as error:
        return str(error)


def test_torchrec_is_refused_where_the_optimizer_counts_occurrences(rank_pools: RankPools):
    for name in ("memory", "network"):
        assert rank_pools.of(2).run(find_with_counts, name) == [name] * 2
    for message in rank_pools.of(2).run(find_with_counts, "torchrec"):
        assert message.startswith('"torchrec" does not count how often a row occurs')
        assert "table_optimizer.cowclip" in message


def find_without_packages(ranks: Ranks, choice: TransportChoice) -> str:
    """Return the error of ranks that have neither native operators nor TorchRec."""
    with mock.patch("importlib.util.find_spec", return_value=None):
        return find_transport(ranks, choice, is_built_on_rank1=False)


def test_where_nothing_works_the_error_says_what_each_transport_needs(rank_pools: RankPools):
    for message in rank_pools.of(2).run(find_without_packages, "auto"):
        assert '"memory" needs the native operators' in message
        assert '"network" needs the native operators' in message
        assert '"torchrec" needs the package torchrec' in message


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
        assert f'"memory" {why}' in message
