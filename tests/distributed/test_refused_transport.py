"""The error of a job that asks for a transport that does not work."""

from unittest import mock

from dlrm.data.errors import DataError
from sharding.comm.process_groups import Ranks
from tests.distributed.training import TrainingSetting
from tests.rank_pool.pool import RankPools


def build_with_memory_on_two_hosts(ranks: Ranks) -> str:
    """Return the error of a job that asks for shared memory while every rank has a host name of its own."""
    with mock.patch("socket.gethostname", return_value=f"host{ranks.rank}"):
        try:
            TrainingSetting(global_size=8, chunk_size=4, transport="memory").build_parts(ranks)
        except DataError as error:
            return str(error)
    return "no error"


def test_memory_that_cannot_be_shared_is_an_error_with_field_and_valid_value(rank_pools: RankPools):
    for message in rank_pools.of(2).run(build_with_memory_on_two_hosts):
        assert "sharding.transport" in message
        assert '"memory" needs all ranks on one machine' in message
        assert '"auto", "network", "torchrec"' in message


def build_int8_without_operators(ranks: Ranks) -> str:
    """Return the error of a job with rows of int8 where the native operators are missing."""
    with mock.patch("sharding.embedding.native_ops.is_built", return_value=False):
        try:
            TrainingSetting(global_size=8, chunk_size=4, table_dtype="int8").build_parts(ranks)
        except DataError as error:
            return str(error)
    return "no error"


def test_rows_of_int8_without_native_operators_are_an_error_that_names_them(rank_pools: RankPools):
    for message in rank_pools.of(2).run(build_int8_without_operators):
        assert "sharding.table_dtype" in message
        assert '"memory" needs the native operators' in message
        assert '"torchrec" keeps tables in fp32 alone' in message
        assert 'valid: "fp32"' in message
