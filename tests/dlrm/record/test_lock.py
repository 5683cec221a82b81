"""The lock of a run directory."""

import os
import re
import socket
from pathlib import Path

import pytest

from dlrm.record import RunDirectory, RunInUseError, hold_run_lock, lock

LOCK_TIMEOUT_SECONDS = 0.1


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOCK_TIMEOUT_SECONDS", LOCK_TIMEOUT_SECONDS)


def refusal_of(directory: RunDirectory) -> RunInUseError:
    with pytest.raises(RunInUseError) as refused, hold_run_lock(directory):
        pass
    return refused.value


def test_the_holder_of_the_lock_is_named(tmp_path: Path):
    directory = RunDirectory(tmp_path)
    with hold_run_lock(directory):
        refused = refusal_of(directory)
        assert str(refused) == f"{tmp_path} is in use by process {os.getpid()}"
        assert refused.advice == f"wait for it to end, or stop it with kill {os.getpid()}"
    with hold_run_lock(directory):
        """The lock is free again."""


@pytest.mark.parametrize(
    ("content", "named", "stop"),
    [
        ("7 far.example", "process 7 on far.example", "stop it with kill 7 on far.example"),
        (f"7 {socket.gethostname()}", "process 7", "stop it with kill 7"),
        ("7", "process 7", "stop it with kill 7"),
        ("", "process unknown", "stop it"),
        ("7 far.example 3 2026-01-02 03:04:05 UTC", "process 7 on far.example", "stop it with kill 7 on far.example"),
    ],
)
def test_a_holder_on_another_machine_is_named_with_it(tmp_path: Path, content: str, named: str, stop: str):
    """Machines that share a file system share its locks. Files of before name no machine."""
    directory = RunDirectory(tmp_path)
    with hold_run_lock(directory):
        directory.lock(0).write_text(content)
        refused = refusal_of(directory)
        assert str(refused) == f"{tmp_path} is in use by {named}"
        assert refused.advice == f"wait for it to end, or {stop}"


def test_a_holder_tells_which_attempt_it_runs_and_since_when(tmp_path: Path):
    directory = RunDirectory(tmp_path)
    with hold_run_lock(directory, attempt=3):
        refused = refusal_of(directory)
        assert refused.attempt == 3
        assert re.search(r"process \d+, attempt 3, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", refused.explain())
        directory.lock(0).write_text("7 far.example")
        refused = refusal_of(directory)
        assert (refused.attempt, refused.explain()) == (None, f"{tmp_path} is in use by process 7 on far.example")
