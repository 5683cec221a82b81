"""A stop at any moment: code 75, an outcome, and nothing lost or left behind."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dlrm.record import EndReason, ProgressReport, RunDirectory, StepReport, find_newest_checkpoint
from tests.e2e.launching import (
    ended,
    processes_of,
    ranks_of,
    reports_of,
    start,
    start_attempt,
)
from tests.patience import wait_until

ENDLESS = {"epochs": 500, "eval_every_fraction": 1.0}
Process = subprocess.Popen[bytes]


def has_phase(phase: str) -> Callable[[RunDirectory, Process], bool]:
    def is_there(directory: RunDirectory, _: Process) -> bool:
        events = reports_of(directory, "events")
        return any(isinstance(event, ProgressReport) and event.phase == phase for event in events)

    return is_there


def has_ranks(_: RunDirectory, process: Process) -> bool:
    return len(ranks_of(process)) == 2


def has_lock(directory: RunDirectory, _: Process) -> bool:
    return directory.lock(0).exists()


def assert_stopped(directory: RunDirectory, process: Process, attempt: int = 1) -> None:
    code, outcome = ended(directory, process, attempt)
    assert (code, outcome.state, outcome.reason) == (75, "stopped", EndReason.STOP_REQUESTED), outcome.message
    assert processes_of(directory) == []
    steps = [report.step for report in reports_of(directory, "metrics", attempt) if isinstance(report, StepReport)]
    if steps:
        left = find_newest_checkpoint(directory.checkpoints)
        assert left is not None
        assert (left.step, outcome.step) == (steps[-1], steps[-1])


@pytest.mark.slow
def test_a_stop_in_the_moment_of_the_start_is_not_lost(tmp_path: Path):
    directory, process = start(tmp_path / "run", run=ENDLESS)
    process.send_signal(signal.SIGTERM)
    assert_stopped(directory, process)


@pytest.mark.slow
def test_a_stop_while_the_ranks_start_is_not_lost(tmp_path: Path):
    directory, process = start(tmp_path / "run", run=ENDLESS)
    wait_until(lambda: has_ranks(directory, process), process)
    process.send_signal(signal.SIGTERM)
    assert_stopped(directory, process)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        (has_lock, signal.SIGINT),
        (has_phase("loading"), signal.SIGTERM),
        (has_phase("building"), signal.SIGTERM),
        (has_phase("training"), signal.SIGINT),
    ],
)
def test_a_stop_at_any_later_moment_is_not_lost(
    tmp_path: Path, moment: Callable[[RunDirectory, Process], bool], number: signal.Signals
):
    directory, process = start(tmp_path / "run", run=ENDLESS)
    wait_until(lambda: moment(directory, process), process)
    process.send_signal(number)
    assert_stopped(directory, process)


@pytest.mark.slow
def test_a_stop_of_all_processes_at_once_again_and_again_is_one_stop(tmp_path: Path):
    directory, process = start(tmp_path / "run", run=ENDLESS)
    wait_until(lambda: len(reports_of(directory, "metrics")) >= 3, process)
    everyone = [psutil.Process(process.pid), *ranks_of(process).values()]
    while process.poll() is None:
        for member in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(signal.SIGTERM)
    assert_stopped(directory, process)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [has_ranks, has_phase("training")])
def test_a_stop_of_one_rank_alone_stops_all_of_them(tmp_path: Path, moment: Callable[[RunDirectory, Process], bool]):
    directory, process = start(tmp_path / "run", run=ENDLESS)
    wait_until(lambda: moment(directory, process), process)
    ranks_of(process)[1].send_signal(signal.SIGTERM)
    assert_stopped(directory, process)


@pytest.mark.slow
def test_a_killed_launch_process_takes_its_ranks_along_and_lets_go_of_the_directory(tmp_path: Path):
    directory, process = start(tmp_path / "run", run={**ENDLESS, "checkpoint_every_seconds": 0.1})
    wait_until(lambda: find_newest_checkpoint(directory.checkpoints) is not None, process)
    second = start_attempt(directory, 2)
    assert second.wait() == 1
    in_use = f"{directory.path} is in use by process {process.pid}"
    assert in_use in (directory.path / "output").read_text()
    assert not directory.attempt(2).path.exists()

    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: processes_of(directory) == [])
    left = find_newest_checkpoint(directory.checkpoints)
    assert left is not None
    process = start_attempt(directory, 2)
    wait_until(lambda: reports_of(directory, "metrics", 2) != [], process)
    assert reports_of(directory, "metrics", 2)[0].step == left.step
    process.send_signal(signal.SIGTERM)
    assert_stopped(directory, process, attempt=2)
