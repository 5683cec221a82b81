"""The trainer of the chaos tests sees what they look for."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlrm.config import JobConfig, resolve
from dlrm.record import RunDirectory, write_atomically
from tests.patience import wait_until
from tests.service.api import make_document
from tests.service.chaos.journal import count_starts, read_journal, read_overlaps
from tests.service.chaos.test_chaos import TRAINER
from tests.service.processes import is_running

Start = Callable[[int], "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path, data_root: Path) -> Iterator[Start]:
    """Function that starts an attempt of a job that waits."""
    directory = RunDirectory(tmp_path)
    directory.spec.write_text(resolve(JobConfig.model_validate(make_document("wait"))).model_dump_json())
    started: list[subprocess.Popen[bytes]] = []

    def run(attempt: int) -> "subprocess.Popen[bytes]":
        directory.attempt(attempt).create()
        write_atomically(directory.attempt(attempt).push_target, '{"url": "http://127.0.0.1:1", "token": ""}')
        command = [sys.executable, str(TRAINER), "-m", "dlrm.launch", str(tmp_path), "--attempt", str(attempt)]
        process = subprocess.Popen(command)
        started.append(process)
        wait_until(lambda: count_starts(tmp_path) == len(started), process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("attempt", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_two_processes_of_a_job_at_once_are_seen(start: Start, attempt: int, tmp_path: Path) -> None:
    start(1)
    assert read_overlaps(tmp_path) == []
    second = start(attempt)
    (line,) = read_overlaps(tmp_path)
    assert f"attempt {attempt} process {second.pid} " in line


@pytest.mark.slow
def test_one_process_of_a_job_after_the_other_is_no_fault(start: Start, tmp_path: Path) -> None:
    first = start(1)
    first.kill()
    first.wait()
    assert not is_running(first.pid)
    start(2)
    assert read_overlaps(tmp_path) == []
    assert [line.split(" ")[0] for line in read_journal(tmp_path)] == ["start", "start"]
