"""Golden losses, which change only on purpose: see CONTRIBUTING.md."""

import json

import pytest

from tests.distributed.golden import CONFIGURATIONS, FILE, NUM_STEPS, train_to_losses
from tests.rank_pool.pool import RankPools


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_hundred_steps_have_the_golden_losses(rank_pools: RankPools, name: str, world_size: int):
    golden: list[float] = json.loads(FILE.read_text())[name]
    assert len(golden) == NUM_STEPS
    assert sum(golden[-10:]) < 0.95 * sum(golden[:10])
    assert train_to_losses(rank_pools, CONFIGURATIONS[name], world_size) == pytest.approx(golden, rel=1e-4)
