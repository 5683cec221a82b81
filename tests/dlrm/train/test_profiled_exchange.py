"""The exchange between ranks in the profile of a run."""

import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from dlrm.record import ProfileDirectory
from dlrm.train.profiler import PartClock, StepProfiler
from sharding.comm.exchange_clock import ExchangeClock
from sharding.comm.process_groups import Ranks
from tests.patience import wait_until
from tests.rank_pool.pool import RankPools

NUM_SUMMED = 1_000_000


def profile_late_sums(ranks: Ranks, path: Path) -> None:
    """Profile three steps in each of which rank 1 is 0.4 s late for a sum, while rank 0 computes for 0.1 s."""
    ranks = replace(ranks, exchange_clock=ExchangeClock())
    clock = PartClock()
    profiler = StepProfiler(ProfileDirectory(path), ranks, clock, 3)
    buffer = torch.zeros(NUM_SUMMED)
    for number in range(3):
        begun = path.with_name(f"begun-{number}")
        if ranks.rank == 1:
            wait_until(begun.exists)
            time.sleep(0.4)
        work = dist.all_reduce(buffer, group=ranks.dense_group, async_op=True)
        assert work is not None
        tracked = ranks.exchange_clock.track("dense gradients", work, buffer.nbytes)
        if ranks.rank == 0:
            begun.touch()
            time.sleep(0.1)
        tracked.wait()
        with profiler.pause():
            dist.all_reduce(buffer, group=ranks.dense_group)
            assert ranks.exchange_clock.track("ids", work, 1) is work, "a pause is not counted"
        profiler.end_step()


def test_what_is_in_flight_while_a_rank_computes_is_told(tmp_path: Path, rank_pools: RankPools):
    directory = ProfileDirectory(tmp_path / "profile")
    directory.path.mkdir()
    rank_pools.of(2).run(profile_late_sums, directory.path)
    early, late = directory.read()
    (of_early,), (of_late,) = early.exchanges, late.exchanges
    assert of_early.kind == of_late.kind == "dense gradients"
    assert of_early.sent_bytes == 4 * NUM_SUMMED
    # Rank 0 starts the sum 0.4 s before rank 1 does, and computes for 0.1 s of that.
    assert 0.39 <= of_early.in_flight_seconds <= early.seconds_per_step
    assert of_early.waited_seconds >= 0.05
    assert of_early.in_flight_seconds - of_early.waited_seconds >= 0.09
    assert of_late.in_flight_seconds <= late.seconds_per_step - 0.39
