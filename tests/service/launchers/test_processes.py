"""The processes of an attempt, found by what they inherit."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from service.launchers.processes import MARKER, find_marked, is_marked


class InExec(psutil.Process):
    """A process of which the kernel shows neither arguments nor environment at the first looks, as within exec."""

    num_looks = 3

    def environ(self) -> dict[str, str]:
        self.num_looks -= 1
        return {} if self.num_looks >= 0 else super().environ()

    def cmdline(self) -> list[str]:
        return [] if self.num_looks >= 0 else super().cmdline()


def test_a_process_that_is_being_executed_is_waited_for(tmp_path: Path) -> None:
    marked = {**os.environ, MARKER: str(tmp_path)}
    code = "print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=marked, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert is_marked(InExec(process.pid), tmp_path)
        process.communicate(b"\n")


def test_processes_without_any_environment_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("service.launchers.processes.time.sleep", waits.append)
    code = "print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bare:
        assert bare.stdout is not None
        bare.stdout.readline()
        assert not is_marked(psutil.Process(bare.pid), tmp_path)
        assert not waits
        bare.communicate(b"\n")


def test_a_process_is_found_from_the_moment_its_start_returns(tmp_path: Path) -> None:
    marked = {**os.environ, MARKER: str(tmp_path)}
    for _ in range(50):
        with subprocess.Popen([sys.executable, "-S", "-c", "input()"], env=marked, stdin=subprocess.PIPE) as process:
            found = find_marked(tmp_path)
            process.communicate(b"\n")
        assert [member.pid for member in found] == [process.pid]
