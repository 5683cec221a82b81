"""Heartbeats between real processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from hostinfo.heartbeat import RankMonitor
from tests.patience import PATIENCE_SECONDS, wait_until

SENDER = """
import sys, threading
from hostinfo import heartbeat
heartbeat.INTERVAL_SECONDS = 0.2
heartbeat.start_heartbeats(int(sys.argv[1]))
threading.Event().wait()
"""
TIMEOUT_SECONDS = 2.0


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> Iterator[RankMonitor]:
    # Restored afterwards: the monitor tells its address to the processes that are started after it.
    monkeypatch.setenv("DLRM_HEARTBEATS", "")
    monitor = RankMonitor(range(4, 6))
    yield monitor
    monitor.close()


@pytest.fixture
def ranks(monitor: RankMonitor) -> Iterator[list[subprocess.Popen[bytes]]]:
    assert os.environ["DLRM_HEARTBEATS"]
    started = [subprocess.Popen([sys.executable, "-c", SENDER, str(rank)]) for rank in monitor.ranks]
    pids = {process.pid for process in started}
    heard: set[int | None] = set()
    while heard != pids:
        heard |= {silent.pid for silent in [wait_until(lambda: monitor.find_silent(0.0))]} - {None}
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_a_stopped_process_is_silent_and_is_named_with_its_state(
    monitor: RankMonitor, ranks: list[subprocess.Popen[bytes]]
):
    ranks[1].send_signal(signal.SIGSTOP)
    silent = wait_until(lambda: monitor.find_silent(TIMEOUT_SECONDS))
    assert (silent.rank, silent.pid) == (5, ranks[1].pid)
    assert silent.silent_seconds >= TIMEOUT_SECONDS
    assert silent.describe().startswith(f" (process {ranks[1].pid}) gave no sign of life for")
    assert "it is stopped, by SIGSTOP" in silent.describe()

    ranks[1].send_signal(signal.SIGCONT)
    wait_until(lambda: monitor.find_silent(TIMEOUT_SECONDS) is None)


def test_a_process_that_has_ended_is_not_silent(monitor: RankMonitor, ranks: list[subprocess.Popen[bytes]]):
    # One is a zombie until it is waited for, the other one is gone.
    ranks[0].kill()
    ranks[1].kill()
    ranks[1].wait()
    wait_until(lambda: monitor.find_silent(0.0) is None)


def test_a_rank_that_has_never_been_heard_is_silent_once_another_one_was(monitor: RankMonitor):
    assert monitor.find_silent(0.0) is None
    with subprocess.Popen([sys.executable, "-c", SENDER, "5"]) as process:
        try:
            silent = wait_until(lambda: monitor.find_silent(TIMEOUT_SECONDS))
        finally:
            process.kill()
    assert (silent.rank, silent.pid) == (4, None)
    assert silent.describe().startswith(" gave no sign of life for")


def test_a_process_that_nobody_listens_to_runs_on():
    environment = {**os.environ, "DLRM_HEARTBEATS": "dlrm-nobody"}
    code = "from hostinfo.heartbeat import start_heartbeats; import time; start_heartbeats(0); time.sleep(0.5)"
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_a_monitor_closes_without_waiting_for_a_heartbeat(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DLRM_HEARTBEATS", "")
    monkeypatch.setattr("hostinfo.heartbeat.INTERVAL_SECONDS", 1e6)
    closing = threading.Thread(target=RankMonitor(range(1)).close, daemon=True)
    closing.start()
    closing.join(PATIENCE_SECONDS)
    assert not closing.is_alive()
