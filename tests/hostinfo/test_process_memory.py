"""Memory of real processes that share pages."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from hostinfo.process_memory import get_tree_memory_bytes

SHARED_BYTES = 64 * 2**20
PROGRAM = f"""
import mmap, os, time
shared = mmap.mmap(-1, {SHARED_BYTES})
shared[:] = bytes(len(shared))
pids = []
for _ in range(2):
    pids.append(os.fork())
    if pids[-1] == 0:
        sum(shared[::4096])
        os.write(1, b"r")
        time.sleep(600)
time.sleep(600)
"""


@pytest.fixture
def process() -> Iterator[psutil.Process]:
    """Start a process and two children, which all use the same 64 MiB."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as started:
        parent = psutil.Process(started.pid)
        try:
            assert started.stdout is not None
            assert started.stdout.read(2) == b"rr"
            yield parent
        finally:
            for member in [*parent.children(), parent]:
                member.kill()


def test_shared_pages_count_once_unless_an_upper_bound_is_enough(process: psutil.Process) -> None:
    exact = get_tree_memory_bytes(process)
    assert SHARED_BYTES < exact < 2 * SHARED_BYTES
    bound = get_tree_memory_bytes(process, exact_above=10 * SHARED_BYTES)
    assert 3 * SHARED_BYTES < bound < 5 * SHARED_BYTES
    assert SHARED_BYTES < get_tree_memory_bytes(process, exact_above=2 * SHARED_BYTES) < 2 * SHARED_BYTES


def test_a_process_that_has_ended_uses_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as started:
        process = psutil.Process(started.pid)
    assert get_tree_memory_bytes(process) == 0
