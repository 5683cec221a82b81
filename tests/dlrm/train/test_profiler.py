"""The profile of a run's steps, by torch's own profiler."""

import gzip
import json
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dlrm.record import ProfileDirectory, StepProfile
from dlrm.train.profiler import PartClock, StepProfiler, make_profiler
from sharding.comm.process_groups import Ranks

CPU = torch.device("cpu")


def make_lone_ranks(rank: int = 0) -> Ranks:
    """Return ranks whose process groups nobody uses."""
    group = dist.ProcessGroup(0, 1)
    return Ranks(rank, 1, CPU, group, group, group, group)


@pytest.fixture
def directory(tmp_path: Path) -> ProfileDirectory:
    directory = ProfileDirectory(tmp_path / "profile")
    directory.path.mkdir()
    return directory


def run_steps(profiler: StepProfiler, clock: PartClock, num_steps: int) -> None:
    """Each of two products in one part and a sum in another."""
    matrix = torch.randn(64, 64)
    for _ in range(num_steps):
        for _ in range(2):
            with clock.part("dense"):
                matrix @ matrix
        with clock.part("agree"):
            matrix.cumsum(0)
        profiler.end_step()


def profile_of(directory: ProfileDirectory, num_steps: int, num_made: int | None = None, rank: int = 0) -> StepProfile:
    clock = PartClock()
    run_steps(
        StepProfiler(directory, make_lone_ranks(rank), clock, num_steps),
        clock,
        num_steps if num_made is None else num_made,
    )
    assert not clock.is_traced
    return StepProfile.model_validate_json(directory.figures(rank).read_bytes())


def test_three_steps_after_the_warm_up_are_profiled(directory: ProfileDirectory):
    profile = profile_of(directory, 20, rank=1)
    assert (profile.rank, profile.first_step, profile.num_steps) == (1, 6, 3)
    calls = {operator.name: operator.calls_per_step for operator in profile.operators}
    assert calls["aten::mm"] == 2
    assert calls["aten::cumsum"] == 1
    assert not calls.keys() & {"dense", "agree"}, "parts are no operators"
    assert list(profile.parts) == ["dense", "agree"]
    assert 0 < sum(profile.parts.values()) <= profile.seconds_per_step
    in_order = [operator.seconds_per_step for operator in profile.operators]
    assert in_order == sorted(in_order, reverse=True)
    assert 0 < sum(in_order) <= profile.seconds_per_step


def test_the_trace_shows_operators_within_the_parts_of_the_step(directory: ProfileDirectory):
    profile_of(directory, 20)
    events = json.loads(gzip.decompress(directory.trace(0).read_bytes()))["traceEvents"]
    spans = {name: [e for e in events if e.get("name") == name and "dur" in e] for name in ("dense", "aten::mm")}
    parts = [(e["ts"], e["ts"] + e["dur"]) for e in spans["dense"] if e["cat"] == "user_annotation"]
    assert len(parts) == len(spans["aten::mm"]) == 6
    for product in spans["aten::mm"]:
        assert any(start <= product["ts"] and product["ts"] + product["dur"] <= end for start, end in parts)


def test_an_evaluation_between_profiled_steps_is_left_out(directory: ProfileDirectory):
    clock = PartClock()
    profiler = StepProfiler(directory, make_lone_ranks(), clock, 3)
    started = time.perf_counter()
    for _ in range(3):
        run_steps(profiler, clock, 1)
        with profiler.pause():
            torch.ones(64, 64).cumprod(0)
            time.sleep(0.05)
    seconds = time.perf_counter() - started
    profile = StepProfile.model_validate_json(directory.figures(0).read_bytes())
    calls = {operator.name: operator.calls_per_step for operator in profile.operators}
    assert calls["aten::mm"] == 2
    assert "aten::cumprod" not in calls
    # Two pauses lie between the three steps, the last one behind them.
    assert sum(profile.parts.values()) <= profile.seconds_per_step <= (seconds - 3 * 0.05) / 3


@pytest.mark.parametrize(("num_steps", "first", "profiled"), [(1, 1, 1), (3, 1, 3), (4, 2, 3), (8, 6, 3)])
def test_of_a_short_run_the_last_steps_are_profiled(
    directory: ProfileDirectory, num_steps: int, first: int, profiled: int
):
    profile = profile_of(directory, num_steps)
    assert (profile.first_step, profile.num_steps) == (first, profiled)


def test_a_run_that_ends_before_its_profile_leaves_none(directory: ProfileDirectory):
    clock = PartClock()
    run_steps(StepProfiler(directory, make_lone_ranks(), clock, 20), clock, 4)
    assert directory.read() == []
    assert list(directory.path.iterdir()) == []


def test_profiles_are_read_by_rank(directory: ProfileDirectory):
    for rank in (10, 2, 0):
        profile_of(directory, 1, rank=rank)
    assert [profile.rank for profile in directory.read()] == [0, 2, 10]


def test_a_profile_that_cannot_be_written_is_told_and_the_run_goes_on(
    directory: ProfileDirectory, caplog: pytest.LogCaptureFixture
):
    clock = PartClock()
    profiler = StepProfiler(directory, make_lone_ranks(), clock, 20)
    directory.path.rmdir()
    run_steps(profiler, clock, 20)
    assert "the profile cannot be written" in caplog.text


def test_nobody_asked_and_nothing_is_profiled(tmp_path: Path):
    assert make_profiler(ProfileDirectory(tmp_path / "profile"), make_lone_ranks(), PartClock(), 20) is None
