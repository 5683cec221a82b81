"""A disk that is full while a run trains."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrm.record import StepReport
from tests.e2e.launching import ONE_RANK, ended, processes_of, ranks_of, reports_of, start
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.small_disk import fill, small_disk

ENDLESS = {"epochs": 500, "eval_every_fraction": 1.0}
FULL_CPU_SECONDS = 0.5
"""Work of a rank while the disk is full: many steps."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        yield disk


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_moment_costs_nothing(disk: Path):
    directory, process = start(disk / "run", run=ENDLESS, resources=ONE_RANK)
    wait_until(lambda: len(reports_of(directory, "metrics")) >= 2, process)
    rank = ranks_of(process)[0]
    filling = fill(disk)
    before = rank.cpu_times().user
    wait_until(lambda: rank.cpu_times().user > before + FULL_CPU_SECONDS, process)
    num_there, was_full_until = len(reports_of(directory, "metrics")), time.time()
    filling.unlink()
    wait_until(lambda: len(reports_of(directory, "metrics")) > num_there + 5, process)
    process.terminate()
    code, outcome = ended(directory, process)
    assert (code, outcome.state) == (75, "stopped"), outcome.message
    reports = reports_of(directory, "metrics")
    assert reports[num_there].time < was_full_until, "it waited for room"
    assert [report.seq for report in reports] == list(range(1, len(reports) + 1))
    steps = [report.step for report in reports if isinstance(report, StepReport)]
    assert steps == list(range(1, outcome.step + 1 if outcome.step else 0))


@pytest.mark.slow
def test_a_run_crashing_on_a_full_disk_leaves_its_code_and_no_process(disk: Path):
    directory, process = start(disk / "run", run=ENDLESS)
    wait_until(lambda: len(reports_of(directory, "metrics")) >= 2, process)
    filling = fill(disk)
    ranks_of(process)[1].kill()
    assert process.wait(PATIENCE_SECONDS) == 1
    assert processes_of(directory) == []
    assert not directory.attempt(1).outcome.exists()
    assert sorted(path.name for path in directory.attempt(1).path.iterdir()) == ["logs", "spool"]
    filling.unlink()
