from collections.abc import Iterator

import pytest

from tests.rank_pool.pool import RankPools


@pytest.fixture(scope="session")
def rank_pools() -> Iterator[RankPools]:
    """Ranks by world size, started once and reused by every test."""
    pools = RankPools("sharding.embedding", "sharding.embedding.torchrec_transport")
    yield pools
    pools.close()
