"""Losses that change only on purpose: see CONTRIBUTING.md."""

import json

import pytest

from tests.distributed.golden import CONFIGURATIONS, FILE, NUM_STEPS, losses_of
from tests.distributed.rank_pool import RankPools


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_hundred_steps_lose_what_they_always_did(rank_pools: RankPools, name: str, world_size: int):
    golden: list[float] = json.loads(FILE.read_text())[name]
    assert len(golden) == NUM_STEPS
    assert sum(golden[-10:]) < 0.95 * sum(golden[:10])
    assert losses_of(rank_pools, CONFIGURATIONS[name], world_size) == pytest.approx(golden, rel=1e-4)
