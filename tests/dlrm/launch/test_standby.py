"""Ranks that wait for their attempt to begin."""

import os
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from torch.distributed.elastic.multiprocessing.subprocess_handler import get_subprocess_handler

from dlrm.config import JobConfig, ResolvedJob, resolve
from dlrm.launch.standby import StandbyRanks
from dlrm.record import RunDirectory
from tests.patience import wait_until


def make_run(path: Path, memory: str) -> tuple[RunDirectory, ResolvedJob]:
    document = {"data": {"format": "synthetic"}, "resources": {"workers_per_node": 2, "memory": memory}}
    resolved = resolve(JobConfig.model_validate(document))
    directory = RunDirectory(path)
    directory.attempt(1).create()
    directory.spec.write_text(resolved.model_dump_json())
    return directory, resolved


def list_waiting(directory: RunDirectory) -> list[psutil.Process]:
    """List the children that work for a run. Children of other tests may have ended and left no arguments."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if str(directory.path) in child.cmdline():
                found.append(child)
    return found


def test_ranks_that_wait_have_imported_what_they_need_and_end_with_the_attempt(tmp_path: Path):
    directory, resolved = make_run(tmp_path, "4GiB")
    with closing(StandbyRanks(directory, 1, resolved, range(4, 6))):
        wait_until(lambda: len(list_waiting(directory)) == 2)
        waiting = list_waiting(directory)
        wait_until(lambda: sorted(process.environ().get("RANK", "") for process in waiting) == ["4", "5"])
        wait_until(lambda: all(has_torch(process) for process in waiting))
    assert not any(process.is_running() for process in waiting)
    # The preparation writes to the same reports meanwhile.
    assert list(directory.attempt(1).spool.iterdir()) == []


def has_torch(process: psutil.Process) -> bool:
    return any("libtorch_cpu" in region.path for region in process.memory_maps())


@pytest.mark.parametrize("memory", ["1GiB", "2047MiB"])
def test_none_waits_where_the_memory_is_needed_for_the_rows(tmp_path: Path, memory: str):
    directory, resolved = make_run(tmp_path, memory)
    with closing(StandbyRanks(directory, 1, resolved, range(2))):
        assert list_waiting(directory) == []


def test_elastic_takes_the_waiting_ranks_and_starts_those_that_do_not_wait(tmp_path: Path):
    directory, resolved = make_run(tmp_path, "4GiB")
    with closing(StandbyRanks(directory, 1, resolved, range(2))) as standby:
        wait_until(lambda: len(list_waiting(directory)) == 2)
        waiting = {process.pid for process in list_waiting(directory)}
        with standby.serve_elastic():
            taken, new = [start_as_elastic(rank) for rank in range(2)], start_as_elastic(2)
        later = start_as_elastic(0)
    assert {process.pid for process in taken} == waiting
    assert [process.wait() for process in (new, later)] == [0, 0]
    for process in taken:
        process.kill()
        process.wait()


def start_as_elastic(local_rank: int) -> subprocess.Popen[bytes]:
    return get_subprocess_handler("true", (), {}, os.devnull, os.devnull, local_rank).proc
